"""Answering of events, whatever the verb: points in, Arrow columns out.

`match.answerer` and `rank.answerer` have one each. The shell writes their columns to a file,
Spark's workers hand them on, and answers in the order of a file are sorted from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64


class Choice(NamedTuple):
    """A structure, and why it was chosen, in one line."""

    name: str
    why: str


class Answers(NamedTuple):
    """The answers to events one after the other, some rows for each of them."""

    first: int
    """The first of these events."""
    offsets: I64
    """The rows of the i-th of them are `offsets[i]` to `offsets[i + 1]`."""
    columns: dict[str, pa.Array]

    @property
    def events(self) -> I64:
        """The event of each row."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets)) + self.first


class Answerer(Protocol):
    """A structure over a set of subscriptions that answers events; it can be pickled."""

    @property
    def ids(self) -> pa.Array:
        """The subscriptions, in order of arrival."""

    @property
    def choice(self) -> Choice:
        """The structure, and why it was chosen."""

    @property
    def memory(self) -> int:
        """Bytes of the structure."""

    @property
    def best(self) -> int | None:
        """Number of answers per event that count, by score; `None`: all, by arrival."""

    @property
    def only_holders(self) -> bool:
        """Whether only a subscription that matches an event can answer it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its answers."""

    def as_part(self, gone: I64, *, is_merged: bool = True) -> Answerer:
        """Return it as a part of a set that lacks the subscriptions that arrived at these times.

        is_merged   whether its answers are merged with those of other parts (`merge_parts`)
        """

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield the answers to events (n, d) in pieces of bounded size, all of an event in one."""


def warm(answerer: Answerer, dimensions: int) -> None:
    """Compile what answers one event and what answers many."""
    for events in (1, 4096):
        next(iter(answerer.answers(np.full((events, dimensions), np.inf))), None)
