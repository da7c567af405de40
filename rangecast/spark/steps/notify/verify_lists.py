"""Top-k lists verified by the workers: each keeps the lists of some interests.

A worker makes the lists of its interests from the objects as they were, applies all messages to
them, and compares them with the lists that the objects as they are now give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from rangecast.model.space import Space
from rangecast.notify.board import Board
from rangecast.notify.messages import Messages
from rangecast.notify.new_interests import NewInterests
from rangecast.spark.session import parallelism
from rangecast.spark.shipped import ship

_SLICES = 4
"""Parts that interests are checked in, for each core."""


class SentMessages(NamedTuple):
    """Objects before and after some messages, and the interests that these went to."""

    space: Space | None
    k: int
    descending: bool
    before: Any
    """Objects as a board takes them."""
    after: pa.Table
    interests: NewInterests
    messages: Sequence[Messages]

    def mismatches(self, begin: int, end: int) -> int:
        """Return how many lists of some interests differ from a recomputation."""
        how: dict[str, Any] = {
            "space": self.space,
            "interests": self.interests.part(begin, end),
            "descending": self.descending,
        }
        lists = Board(self.k, objects=self.before, **how).lists()
        for messages in self.messages:
            lists.deliver(messages)
        return len(Board(self.k, objects=self.after, **how).mismatches(lists))


def mismatches(session: SparkSession, sent: SentMessages) -> int:
    """Return how many lists differ from a recomputation, counted by the workers."""
    count = len(sent.interests.ids)
    slices = max(1, min(count, _SLICES * parallelism(session)))
    shipped = ship(session, sent)

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column("id").to_pylist():
                begin, end = count * part // slices, count * (part + 1) // slices
                yield pa.record_batch({"mismatches": [shipped.open().mismatches(begin, end)]})

    counted = session.range(0, slices, 1, slices).mapInArrow(check, "mismatches long").collect()
    shipped.release()
    return sum(row["mismatches"] for row in counted)
