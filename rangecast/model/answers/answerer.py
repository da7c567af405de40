"""Interface of answerers for all verbs: points in, Arrow columns out.

`match.answerer` and `rank.answerer` implement it. The shell writes the columns to a file, and
Spark's workers pass them on. Answers in file order are sorted from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64


class Choice(NamedTuple):
    """Chosen index structure, with a one-line reason."""

    name: str
    why: str


class Answers(NamedTuple):
    """Answers to consecutive events, zero or more rows per event."""

    first: int
    """The first of these events."""
    offsets: I64
    """The rows of the i-th of them are `offsets[i]` to `offsets[i + 1]`."""
    columns: dict[str, pa.Array]

    @property
    def events(self) -> I64:
        """Return the event index of each row."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets)) + self.first


class Answerer(Protocol):
    """Index over a set of subscriptions that answers events. It can be pickled."""

    @property
    def ids(self) -> pa.Array:
        """Ids of the subscriptions, in order of arrival."""

    @property
    def choice(self) -> Choice:
        """Chosen index structure, with the reason."""

    @property
    def memory(self) -> int:
        """Size of the index in bytes."""

    @property
    def best(self) -> int | None:
        """Maximum number of answers per event, by score; `None` returns all, by arrival."""

    @property
    def only_holders(self) -> bool:
        """Whether only matching subscriptions can be answers."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the answer columns."""

    def as_part(self, gone: I64, *, is_merged: bool = True) -> Answerer:
        """Return this answerer as one part of a set, without the removed subscriptions.

        gone        arrival numbers of the removed subscriptions
        is_merged   whether its answers are merged with those of other parts (`merge_parts`);
                    otherwise, they may come in any order, and split an event
        """

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield the answers to events (n, d) in bounded chunks; an event is never split."""


def warm(answerer: Answerer, dimensions: int) -> None:
    """Compile the kernels for single events and for batches."""
    for events in (1, 4096):
        next(iter(answerer.answers(np.full((events, dimensions), np.inf))), None)
