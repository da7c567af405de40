"""Options of tracks: of a space, and rules and policies of subscriptions and consumers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rangecast.engine import Engine
from rangecast.errors import RangecastError, SpaceError, UsageError, abbreviate, did_you_mean
from rangecast.model.space import Space
from rangecast.server.encoding import TrackColumns
from rangecast.track.delivery.policies import Policy
from rangecast.track.moments import Length, length_of
from rangecast.track.rules import Rule, check_rule
from rangecast.track.tracker import Tracker
from rangecast.track.transitions import KINDS

OPTIONS = ("key", "time", "after", "lateness", "inside", "accuracy", "clock")
"""Options of a space's tracks: those of a `Tracker`, and the lag behind the server's clock."""
_RULE = tuple(field.name.rstrip("_") for field in fields(Rule) if field.init)
"""Fields of a rule, by their names over HTTP."""
_POLICY = tuple(field.name for field in fields(Policy) if field.init)


def check_track(track: Mapping[str, Any], space: Space) -> None:
    """Reject track options that are invalid for a space."""
    if not isinstance(track, dict):
        raise UsageError(f"track of a space must be an object; given: {abbreviate(track)}")
    _check_names(track, OPTIONS, "track of a space")
    for name in ("key", "time"):
        if not isinstance(track.get(name), str) or not track[name]:
            raise UsageError(
                f"track of a space requires the name of a column as {name}; "
                f"given: {abbreviate(track.get(name))}"
            )
    length_of("clock", track.get("clock"), min=0)
    tracker_of(Engine(space), track)


def space_and_track(text: str) -> tuple[Space, dict[str, Any] | None]:
    """Parse a space in TOML, with its track settings from the table `track`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return Space.from_toml(text), None  # which says what is wrong
    track = document.pop("track", None)
    if track is None:
        return Space.from_toml(text), None
    space = Space.from_definition(document)
    check_track(track, space)
    return space, track


def load_space(path: Path) -> tuple[Space, dict[str, Any] | None]:
    """Return the space in a TOML file, and its track settings."""
    try:
        return space_and_track(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path}: can't be read: {error}") from None
    except RangecastError as error:
        raise SpaceError(f"{path}: {error}") from None


def tracker_of(engine: Engine, track: Mapping[str, Any]) -> Tracker:
    """Return a tracker with the track options of a space."""
    return Tracker(engine, **{name: value for name, value in track.items() if name != "clock"})


def track_columns(track: Mapping[str, Any] | None) -> TrackColumns | None:
    """Return the event columns that the tracks of a space need."""
    if track is None:
        return None
    accuracy = track.get("accuracy") or ""
    if isinstance(accuracy, dict):
        (accuracy,) = accuracy.values()
    return TrackColumns(track["key"], accuracy)


def clock_of(track: Mapping[str, Any]) -> int | None:
    """Return the lag behind the server's clock; `None`: only events advance time."""
    clock: Length | None = track.get("clock")
    return length_of("clock", clock, min=0)


def rule_of(track: Mapping[str, Any]) -> Rule:
    """Return the rule of a subscription from its HTTP form."""
    return Rule.of({name: value for name, value in track.items() if name in _RULE})


def policy_of(definition: Any) -> Policy | None:
    """Return the policy of a subscription or a consumer from its HTTP form."""
    if definition is None:
        return None
    if not isinstance(definition, dict):
        raise UsageError(f"policy must be an object; given: {abbreviate(definition)}")
    _check_names(definition, _POLICY, "policy")
    try:
        return Policy.of(definition)
    except TypeError as error:
        raise UsageError(f"policy can't be read: {error}") from None


def kinds_of(track: Mapping[str, Any]) -> frozenset[str]:
    """Return the kinds of transitions that a subscription wants."""
    return frozenset(track.get("on", KINDS))


def check_rule_of(track: Mapping[str, Any], space: Space) -> None:
    """Reject a rule that is invalid for a subscription of this space."""
    _check_names(track, ("on", "policy", *_RULE), "track of a subscription")
    kinds = track.get("on", ["enter", "exit"])
    if not isinstance(kinds, list) or not kinds or not set(map(str, kinds)) <= set(KINDS):
        raise UsageError(
            f"on must be a list of {', '.join(map(repr, KINDS))}; given: {abbreviate(kinds)}"
        )
    check_rule(rule_of(track), space)
    policy = policy_of(track.get("policy"))
    if policy is not None and policy.renotify is not None and not {"enter", "exit"} <= set(kinds):
        raise UsageError(
            f"renotify requires enter and exit; given: on = {abbreviate(kinds)}\n"
            "  hint: add enter and exit, or leave out on"
        )


def _check_names(track: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in track:
        if name not in known:
            raise UsageError(
                f"{what} has no {abbreviate(name)}: {did_you_mean(str(name), [*known])}"
            )
