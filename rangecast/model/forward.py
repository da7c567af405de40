"""Edits that a broker advertises to its neighbours when its subscriptions change.

The order matters: subscriptions are sent before others are withdrawn. Otherwise a neighbour would
miss events in between. An id that is sent again has a new filter, which replaces the one that the
neighbour knows; so it is sent after the subscriptions that the old filter covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import I64, Bool
from rangecast.model.answers.results import Results
from rangecast.model.display import ROWS, counted, few
from rangecast.model.sets.members import Id


class Forward(NamedTuple):
    """Edits to advertise after one edit. Falsy if there are none."""

    subscribe: list[Id]
    """Send these first, in this order, with their filters as they are now."""
    unsubscribe: list[Id]
    """Then withdraw these."""

    def __bool__(self) -> bool:
        return bool(self.subscribe or self.unsubscribe)

    def __repr__(self) -> str:
        subscribe, unsubscribe = (few(ids, len(ids), ROWS) for ids in self)
        return f"Forward(subscribe={subscribe}, unsubscribe={unsubscribe})"


@dataclass(frozen=True, eq=False, repr=False)
class Forwards(Results[Forward]):
    """Edits to advertise after many edits, one `Forward` per edit."""

    commands: int
    command: I64
    """The command that causes each message, ascending."""
    ids: list[Id]
    withdraws: Bool
    """Whether a message withdraws its subscription; else it is sent."""

    def __len__(self) -> int:
        return self.commands

    def _size(self) -> str:
        return f"{counted(len(self.ids), 'message')} of {counted(self.commands, 'command')}"

    def _header(self) -> tuple[str, ...]:
        return "command", "subscribe", "unsubscribe"

    def _cells(self, index: int) -> tuple[Any, ...]:
        return index, *self._item(index)

    @cached_property
    def _offsets(self) -> I64:
        return np.searchsorted(self.command, np.arange(self.commands + 1))

    def _item(self, index: int) -> Forward:
        begin, end = self._offsets[index : index + 2].tolist()
        sent = begin + int(np.count_nonzero(~self.withdraws[begin:end]))
        return Forward(self.ids[begin:sent], self.ids[sent:end])

    def table(self) -> pa.Table:
        """Return all messages in sending order: command, action, id."""
        actions = np.where(self.withdraws, "unsubscribe", "subscribe")
        return pa.table({"command": self.command, "action": actions, "id": self.ids})

    @classmethod
    def of(cls, forwards: list[Forward]) -> Forwards:
        """Combine the forwards of consecutive edits."""
        sizes = np.array([[len(f.subscribe), len(f.unsubscribe)] for f in forwards], np.int64)
        sizes = sizes.reshape(-1, 2)
        return cls(
            len(forwards),
            np.repeat(np.arange(len(forwards)), sizes.sum(axis=1)),
            [item for f in forwards for items in f for item in items],
            np.repeat(np.tile([False, True], len(forwards)), sizes.reshape(-1)),
        )
