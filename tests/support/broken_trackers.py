"""Trackers with one mistake each, which histories must find: a test of the test.

Mistakes of the kernel are made in its source, which then runs as plain Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from rangecast import Tracker
from rangecast.track import machine, state, waiting
from rangecast.track.waiting import Batch
from tests.support.track_model import Oracle, actual, by_key, history_of

SEEDS = 150
KERNELS = ("apply_events", "run_timers", "edit_stays")
IN_KERNEL = {
    "an exit isn't confirmed": (
        "if not rules.confirm[row] or not had & CONFIRMED:",
        "if True:",
    ),
    "an enter isn't confirmed": (
        "        if not rules.confirm[row]:\n            _confirm(",
        "        if True:\n            _confirm(",
    ),
    "a blip restarts the stay": (
        "stays.flags[stay] = (had | SIGNAL) & ~np.uint8(EDITED)",
        "stays.flags[stay] = (had | SIGNAL) & ~np.uint8(EDITED | DWELT)",
    ),
    "a timer runs before the event at its time": (
        "_run_before(objects, stays, rules, out, totals, slot, at, after)",
        "_run_before(objects, stays, rules, out, totals, slot, at + 1, after)",
    ),
    "a repeated time counts again": ("        if at <= last:", "        if at < last:"),
    "a late event flips the state": ("        if at <= last:", "        if at == last:"),
    "silence counts from the enter": (
        "silence = objects.last[slot] + after",
        "silence = stays.since[objects.stay[slot]] + after",
    ),
    "silence is reported of what was never entered": (
        "    if flags & CONFIRMED:\n        reason",
        "    if True:\n        reason",
    ),
    "after a silence nothing is first": (
        "is_first = last == NEVER or (after >= 0 and at - last > after)",
        "is_first = last == NEVER",
    ),
    "enters come before exits": (
        "out.kind[at - 1] > out.kind[at]",
        "out.kind[at - 1] < out.kind[at]",
    ),
    "subscriptions come in any order": (
        "out.subscription[at - 1] > out.subscription[at]",
        "False",
    ),
    "numbers start again with each group": (
        "out.number[row] = objects.number[slot]",
        "out.number[row] = row - begin",
    ),
    "dwell is reported while the object is away": (
        "    if not flags & SIGNAL:",
        "    if not flags & SIGNAL and (flags & DWELT or not rules.dwell[row]):",
    ),
    "until ends a stay that the filter still matches": (
        "if flags & MATCHED:",
        "if flags & MATCHED and not (was and rule == ENDS and flags & SECOND):",
    ),
    "a margin lets objects enter": (
        "        if not flags & MATCHED:\n            if",
        "        if not flags & (MATCHED | SECOND):\n            if",
    ),
    "a path crosses what its object was inside of": (
        "if known[index] or flags & UNSURE:",
        "if (known[index] and not flags & CROSSED) or flags & UNSURE:",
    ),
    "an unsure event ends a stay": ("        if flags & UNSURE:\n", "        if False:\n"),
    "an unsure event begins a stay": (
        "if known[index] or flags & UNSURE:",
        "if known[index]:",
    ),
    "a crossing comes after an enter": (
        "EXIT, CROSS, ENTER, INSIDE, DWELL = 0, 1, 2, 3, 4",
        "EXIT, CROSS, ENTER, INSIDE, DWELL = 0, 2, 1, 3, 4",
    ),
    "an edit is remembered after the next event": ("& ~np.uint8(EDITED)", "& ~np.uint8(0)"),
}


class AppliesAtOnce(Tracker):
    """Applies events as they come, in spite of its lateness."""

    def _move(self, watermark):
        return super()._move(max(watermark, self._newest + 1))


class ForgetsTooEarly(Tracker):
    """Forgets an object as soon as it is inside of nothing."""

    def _forgotten(self):
        return machine.FAR


class OpensAsNew(Tracker):
    """Loses the waiting events when it is opened."""

    @classmethod
    def open(cls, path, engine):
        tracker = super().open(path, engine)
        tracker._waiting = waiting.Waiting()
        return tracker


class NewestOfTheBatch(Tracker):
    """Measures how late an event is by the newest one of its batch, even if that comes later."""

    def _behind(self, newest):
        return super()._behind(np.full(len(newest), newest.max(initial=machine.NEVER)))


class KeepsWaitingMatches(Tracker):
    """Lets a waiting event begin a stay with a subscription that was removed meanwhile."""

    def _take_edits(self, news):
        keep, Batch.without = Batch.without, lambda batch, removed: batch
        try:
            return super()._take_edits(news)
        finally:
            Batch.without = keep


class SeesNoEdits(Tracker):
    """Doesn't look for subscriptions that were removed."""

    def _take_edits(self, news):
        return super()._take_edits(news and news._replace(changed={}))


class NoLongestGap(Tracker):
    """Looks at paths of any length."""

    def _apply(self, batch):
        paths = state.State.paths
        longest = lambda self, *given: paths(self, *given[:3], machine.FAR, given[4])  # noqa: E731
        rules = [self._set.default, *self._set.by_id.values()]
        gaps = [rule._gap for rule in rules]
        for rule in rules:
            object.__setattr__(rule, "_gap", rule._gap and machine.FAR)
        state.State.paths = longest
        try:
            return super()._apply(batch)
        finally:
            state.State.paths = paths
            for rule, gap in zip(rules, gaps, strict=True):
                object.__setattr__(rule, "_gap", gap)


class PathsAcrossSilence(Tracker):
    """Looks at paths from before a silence."""

    def _apply(self, batch):
        paths = state.State.paths
        state.State.paths = lambda self, *given: paths(self, *given[:4], -1)
        try:
            return super()._apply(batch)
        finally:
            state.State.paths = paths


class PathsOfIgnoredEvents(Tracker):
    """Takes the last event that came as the beginning of a path, even if it was ignored."""

    def _apply(self, batch):
        found = super()._apply(batch)
        if batch.points.shape[1]:
            self._state._points[self._state.slots_of(batch.keys)] = batch.points
        return found


class ExactAfterAll(Tracker):
    """Takes every event as exact."""

    def _radii(self, given):
        return None


IN_PYTHON = [
    NoLongestGap,
    PathsAcrossSilence,
    PathsOfIgnoredEvents,
    ExactAfterAll,
    AppliesAtOnce,
    ForgetsTooEarly,
    OpensAsNew,
    NewestOfTheBatch,
    KeepsWaitingMatches,
    SeesNoEdits,
]
BROKEN = [*IN_KERNEL, *(kind.__name__ for kind in IN_PYTHON)]


def mutated(old: str, new: str) -> SimpleNamespace:
    """Return the kernels with one mistake, as plain functions."""
    source = inspect.getsource(machine)
    assert source.count(old) == 1, f"{source.count(old)} times in the kernel: {old}"
    source = source.replace(old, new).replace("@jit\n", "")
    names = {"__name__": machine.__name__}
    exec(compile(source, "mutated", "exec"), names)
    return SimpleNamespace(**{name: names[name] for name in KERNELS})


@contextmanager
def broken(mistake: str) -> Iterator[type[Tracker]]:
    """Give the trackers with a mistake."""
    with pytest.MonkeyPatch.context() as patch:
        if mistake in IN_KERNEL:
            for name, kernel in vars(mutated(*IN_KERNEL[mistake])).items():
                patch.setattr(state, name, kernel)
            yield Tracker
        else:
            yield next(kind for kind in IN_PYTHON if kind.__name__ == mistake)


def found_by(mistake: str, folder) -> int | None:
    """Return the first history that shows a mistake."""
    with broken(mistake) as kind:
        for seed in range(SEEDS):
            history = history_of(seed)
            oracle = Oracle(history)
            expected = by_key(oracle.run())
            saves = folder / f"{seed}" if kind is OpensAsNew else None
            rows, tracker = actual(history, saves, batches=True, kind=kind)
            counts = tracker.late, tracker.repeated
            if by_key(rows) != expected or counts != (oracle.late, oracle.repeated):
                return seed
    return None
