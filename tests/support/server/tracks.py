"""Histories of `track_model` as requests to a server, and its messages as rows of the oracle."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

from rangecast import Number, Space, Timestamp
from rangecast.server.delivery.messages import Message
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    AdvanceTracks,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
)
from tests.support.track_model import (
    History,
    Oracle,
    Row,
    RuleOf,
    Step,
    length,
    moment,
    text,
    tick_of,
)

T, SPACE, CONSUMER = "default", "things", "one"
DEFINITION = Space([Timestamp("at"), Number("value")]).definition()


class EagerOracle(Oracle):
    """Takes an edit in at once, as a server does, not with the next event."""

    def subscribe(self, name: str, span: Any) -> None:
        super().subscribe(name, span)
        self.look()

    def replace(self, name: str, span: Any) -> None:
        super().replace(name, span)
        self.look()

    def unsubscribe(self, name: str) -> None:
        super().unsubscribe(name)
        self.look()


def track_of(history: History) -> dict[str, Any]:
    """Return the track of the space."""
    found = {"key": "key", "time": "at", "inside": history.inside}
    lengths = {"after": length(history.after), "lateness": length(history.lateness)}
    found |= {"accuracy": {"value": "error"}} if history.accuracy else {}
    return found | {name: one for name, one in lengths.items() if one is not None}


def rule_track(rule: RuleOf) -> dict[str, Any]:
    """Return the track of a subscription."""
    found = {
        "for": length(rule.for_ or None),
        "dwell": length(rule.dwell or None),
        "first": rule.first,
        "margin": {"value": rule.margin} if rule.margin else None,
        "until": text(rule.until) if rule.until else None,
        "cross": length(rule.cross or None),
    }
    return {name: value for name, value in found.items() if value is not None}


def event_of(history: History, step: Step) -> bytes:
    """Return an event as it is published."""
    key, tick, value, number, error = step.given
    event = {"key": key, "at": moment(tick).isoformat(), "value": value, "id": number}
    return json.dumps(event | ({"error": error} if history.accuracy else {})).encode()


def early(history: History) -> dict[str, Any]:
    """Return the rule of a subscription that matches nothing.

    The oracle knows all rules from the beginning, a server those of the subscriptions that there
    are. With this one it remembers from the beginning what first sightings and crossings need.
    """
    return {"first": history.rule.first, "cross": "20 s"}


NOWHERE = "value between 100 and 101"


async def prepared(service: Service, history: History) -> None:
    """Make the space and a consumer."""
    put = PutSpace(T, SPACE, DEFINITION, track_of(history))
    made = PutConsumer(T, CONSUMER, SPACE, start=0)
    none = PutSubscription(T, "none", SPACE, NOWHERE, CONSUMER, track=early(history))
    await result_of(service.core.edit(put, made, none))


async def taken(service: Service, history: History, step: Step) -> None:
    """Send what a step asks for."""
    core, given = service.core, step.given
    if step.do == "event":
        entry = core.registry.space(T, SPACE)
        lines = [event_of(history, step)]
        accepted = await result_of(core.publish(entry, lines, wants_matches=True))
        assert not accepted.rejected
    elif step.do in ("subscribe", "replace"):
        track = rule_track(history.rules.get(given[0], history.rule))
        put = PutSubscription(T, given[0], SPACE, text(given[1]), CONSUMER, track=track)
        await result_of(core.edit(put))
    elif step.do == "unsubscribe":
        await result_of(core.edit(DeleteSubscription(T, given[0], SPACE)))
    elif step.do in ("advance", "flush"):
        if step.do == "flush":
            ticks = [one.given[1] for one in history.steps if one.do == "event"]
            if not ticks:
                return
            given = (max(ticks) + 1,)
        micros = _micros(given[0])
        await result_of(core.edit(AdvanceTracks(T, SPACE, micros)))


async def settled(service: Service) -> None:
    """Wait until all transitions are in the log."""
    core = service.core
    while core.pipeline.matched < core.pipeline.durable or any(
        tracks.pending for tracks in core.tracks.spaces.values()
    ):
        await asyncio.sleep(0.01)


def row_of(message: Message) -> tuple[str, Row]:
    """Return the id of a message, and its transition as the oracle says it, but for its number."""
    said = json.loads(message.json("e"))
    at, since = (tick_of(datetime.fromisoformat(said[name])) for name in ("at", "since"))
    row = row_of_json(said | {"at": _micros(at), "since": _micros(since)})
    return said["id"], row._replace(subscription=said["subscriptions"][0])


def row_of_json(said: dict[str, Any]) -> Row:
    """Return a transition of the log as a row."""
    at, since = (said[name] // 1_000_000 - _micros(0) // 1_000_000 for name in ("at", "since"))
    event = None if said["event"] is None else said["event"]["id"]
    names = said.get("subscription", ""), said["transition"]
    return Row(said["key"], at, 0, *names, since, event, said["reason"])


def _micros(tick: int) -> int:
    return int(moment(tick).timestamp() * 1_000_000)
