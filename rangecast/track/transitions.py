"""Transitions: what a tracker returns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import I64
from rangecast.model.answers.results import Results
from rangecast.model.display import counted
from rangecast.model.sets.members import Id
from rangecast.track.moments import micros_of, moment_of

KINDS = ("exit", "cross", "enter", "inside", "dwell")
"""Kinds by their number in the kernel, which is their order at one moment."""
COLUMNS = ("event", "subscription", "transition", "key", "at", "since", "reason", "number", "id")
"""Columns of a table of transitions."""
REASONS = ("event", "edited", "removed", "silent", "time")
_ID_BYTES = 16
_MOMENT = pa.timestamp("us", "UTC")


class Transition(NamedTuple):
    """A change of an object relative to a subscription."""

    key: Id
    """The object."""
    subscription: Id
    transition: str
    """enter, exit, inside, dwell or cross."""
    at: datetime
    """When it took effect, in event time."""
    since: datetime
    """When the stay began; of a `cross`, the time of the event before."""
    event: Id | None
    """Id of the event that caused it; `None`: a timer or an edit did, or the event has no id."""
    reason: str
    """event, time, silent, edited or removed."""
    number: int
    """(at, number) orders the transitions of an object, and is never used twice."""

    @property
    def id(self) -> str:
        """Deterministic id: the same whenever this transition is derived again."""
        return transition_id(self.key, self.subscription, self.transition, micros_of(self.at))


class Transitions(Results[Transition]):
    """A sequence of transitions; those of each object are in order."""

    __slots__ = ("_at", "_events", "_keys", "_kinds", "_numbers", "_reasons", "_since", "_subjects")

    def __init__(
        self,
        keys: list[Id],
        subscriptions: list[Id],
        events: list[Id | None],
        columns: tuple[I64, I64, I64, I64, I64],
    ):
        """Set the columns; the last five are kind, reason, at, since and number."""
        self._keys, self._subjects, self._events = keys, subscriptions, events
        self._kinds, self._reasons, self._at, self._since, self._numbers = columns

    @classmethod
    def none(cls) -> Transitions:
        """Return an empty sequence."""
        nothing = np.zeros(0, np.int64)
        return cls([], [], [], (nothing, nothing, nothing, nothing, nothing))

    def __len__(self) -> int:
        return len(self._keys)

    def _item(self, index: int) -> Transition:
        return Transition(
            self._keys[index],
            self._subjects[index],
            KINDS[self._kinds[index]],
            moment_of(int(self._at[index])),
            moment_of(int(self._since[index])),
            self._events[index],
            REASONS[self._reasons[index]],
            int(self._numbers[index]),
        )

    def rows(self) -> Iterator[tuple[Id, Id, str, int, int, Id | None, str, int]]:
        """Yield the fields of each `Transition`, with moments in microseconds since 1970."""
        return zip(
            self._keys,
            self._subjects,
            [KINDS[kind] for kind in self._kinds.tolist()],
            self._at.tolist(),
            self._since.tolist(),
            self._events,
            [REASONS[reason] for reason in self._reasons.tolist()],
            self._numbers.tolist(),
            strict=True,
        )

    def _size(self) -> str:
        return counted(len(self), "transition")

    def _header(self) -> tuple[str, ...]:
        return "key", "transition"

    def _label(self, index: int) -> Any:
        return self._keys[index]

    def table(self) -> pa.Table:
        """Return the transitions as a table, with the fields of `Transition` and `id`."""
        kinds = [KINDS[kind] for kind in self._kinds.tolist()]
        fields = self._keys, self._subjects, kinds, self._at.tolist()
        ids = [transition_id(*row) for row in zip(*fields, strict=True)]
        columns = {
            "event": pa.array(self._events, _type(self._events)),
            "subscription": pa.array(self._subjects, _type(self._subjects)),
            "transition": pa.array(kinds, pa.string()),
            "key": pa.array(self._keys, _type(self._keys)),
            "at": pa.array(self._at, _MOMENT),
            "since": pa.array(self._since, _MOMENT),
            "reason": pa.array([REASONS[reason] for reason in self._reasons.tolist()], pa.string()),
            "number": pa.array(self._numbers),
            "id": pa.array(ids, pa.string()),
        }
        return pa.table(columns)


def joined(parts: list[Transitions]) -> Transitions:
    """Return several sequences of transitions, concatenated."""
    if len(parts) < 2:
        return parts[0] if parts else Transitions.none()
    listed = [[item for part in parts for item in getattr(part, name)] for name in _LISTS]
    columns: Any = tuple(
        np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
    )
    return Transitions(listed[0], listed[1], listed[2], columns)


_LISTS = ("_keys", "_subjects", "_events")
_COLUMNS = ("_kinds", "_reasons", "_at", "_since", "_numbers")


def _type(ids: list[Any]) -> pa.DataType:
    known = next((id_ for id_ in ids if id_ is not None), 0)
    return pa.int64() if isinstance(known, int) else pa.large_string()


def transition_id(key: Id, subscription: Id, transition: str, at: int) -> str:
    """Return the id of a transition; `at` is in microseconds since 1970.

    An object has one event at a time, and one stay at a time in a subscription, which begins with
    an event: so it has each kind of transition of a subscription at most once at a moment. Other
    subscriptions have no influence, so a program that tracks only some derives the same ids.
    """
    data = repr((key, subscription, transition, at)).encode(errors="backslashreplace")
    return blake2b(data, digest_size=_ID_BYTES).hexdigest()
