"""Mistakes that are planted in the links of servers, to see that the simulation finds each."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import rangecast.server.links.broker_runner as runner_module
import rangecast.server.state.lineage as lineage_module
from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.wire.frames import Hello
from rangecast.server.state.lineage import Lineage


@contextmanager
def _patched(where: Any, **what: Any) -> Any:
    before = {name: getattr(where, name) for name in what}
    for name, new in what.items():
        setattr(where, name, new)
    try:
        yield
    finally:
        for name, old in before.items():
            setattr(where, name, old)


@contextmanager
def numbers_twice() -> Any:
    """Numbers are those of the log, and a neighbour is rejected only if it has higher ones."""
    wrong_with = Broker._wrong_with

    def next_(lineage: Lineage, last: int, chain: bytes, above: int = 0) -> Any:
        return lineage_module.BeginEpoch(
            "", lineage_module.new_epoch(), lineage.epoch, last + 1, chain.hex()
        )

    def wrong(broker: Broker, link: Any, frame: Hello) -> Any:
        if frame.kept.get(broker.name, 0) > broker._number:
            return "history", "the log here has lost events"
        return wrong_with(broker, link, frame)

    with (
        _patched(Lineage, next=next_),
        _patched(Broker, _wrong_with=wrong, _compare_histories=lambda *_: None),
    ):
        yield


@contextmanager
def sends_again_and_again() -> Any:
    """All that isn't confirmed is sent again every three seconds, and nothing ends that."""
    tick = Broker._tick

    def ticked(broker: Broker, now: float, given: Any) -> None:
        for link in broker.links.values():
            link.last_frame_at = now
        tick(broker, now, given)

    settings = replace(runner_module.SETTINGS, is_reliable=False, silence_timeout=None)
    with _patched(runner_module, SETTINGS=settings), _patched(Broker, _tick=ticked):
        yield


@contextmanager
def names_are_taken() -> Any:
    """The second server under a name takes the place of the first."""
    wrong_with = Broker._wrong_with

    def wrong(broker: Broker, link: Any, frame: Hello) -> Any:
        link.log = ""
        return wrong_with(broker, link, frame)

    silent: Any = lambda *_: None  # noqa: E731
    with _patched(Broker, _wrong_with=wrong, conflict=lambda *_: "", _compare_disks=silent):
        yield


@contextmanager
def holes_in_silence() -> Any:
    """What retention has cut isn't told behind a link."""
    with _patched(Link, lose=lambda _: None):
        yield


BROKEN = {
    numbers_twice: 2,
    sends_again_and_again: 2,
    names_are_taken: 25,
    holes_in_silence: 2,
}
"""Mistakes, and a seed that finds each."""
