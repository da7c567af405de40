"""Subscriptions that are ready for the workers: what `match` and `rank` can use many times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rangecast.errors import UsageError
from rangecast.match.answerer import MatchAnswerer
from rangecast.match.choose import check_index as check_match_index
from rangecast.model.answers import Answerer, Choice, warm
from rangecast.model.badrows import BadRows
from rangecast.model.boxes import Boxes
from rangecast.model.inputs import as_boxes
from rangecast.model.snapshot import MANIFEST, load_boxes
from rangecast.model.space import Space
from rangecast.rank.answerer import RankAnswerer
from rangecast.rank.choose import check_index as check_rank_index
from rangecast.rank.combine import check_combine
from rangecast.spark.shipped import ShippedObject, ship
from rangecast.spark.subscriptions import EncodedSet, encode, gather

Subscriptions = DataFrame | Boxes | str | Path
"""A DataFrame, `Boxes`, a snapshot folder, or a file of subscriptions."""


@dataclass(frozen=True)
class Prepared:
    """An answerer on its way to the workers, and the space of its subscriptions."""

    space: Space
    """With every word that the subscriptions mention."""
    answerer: Answerer
    """Mapped into the driver's memory, as workers map it into theirs."""
    shipped: ShippedObject
    width: int
    """How many coordinates an event has: one per attribute, or more."""

    @classmethod
    def of(
        cls, session: SparkSession, answerer: Answerer, space: Space, width: int | None = None
    ) -> Prepared:
        """Ship an answerer, and compile what the workers will call.

        `width` is how many coordinates its events have, one per attribute if not given.
        """
        shipped = ship(session, answerer)
        mapped = shipped.open_here()
        width = len(space) if width is None else width
        warm(mapped, width)
        return cls(space, mapped, shipped, width)

    @property
    def rows(self) -> int:
        """How many subscriptions there are."""
        return len(self.answerer.ids)

    @property
    def choice(self) -> Choice:
        """The structure, and why it was chosen."""
        return self.answerer.choice

    @property
    def memory(self) -> int:
        """Bytes of the structure."""
        return self.answerer.memory

    def check(self, space: Space, kind: type[Answerer]) -> None:
        """Refuse to answer events of another space, or another question."""
        if self.space.definition() != space.definition():
            raise UsageError(f"the subscriptions were prepared for {self.space}, not for {space}")
        if not isinstance(self.answerer, kind):
            made, needed = ("prepare", "prepare_ranking")[:: 1 if kind is RankAnswerer else -1]
            raise UsageError(
                f"these subscriptions were prepared with {made}()\n  to do: use {needed}()"
            )

    def release(self) -> None:
        """Remove the structure from the driver's host: no events will be answered with it."""
        self.shipped.release()


def prepare(
    session: SparkSession,
    subscriptions: Subscriptions,
    space: Space,
    *,
    index: str = "auto",
    bad_rows: BadRows | None = None,
) -> Prepared:
    """Build a matching structure over subscriptions, and ship it to the workers.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, or a file of subscriptions
    """
    check_match_index(index)
    boxes, known = gathered(subscriptions, space, bad_rows)
    return Prepared.of(session, MatchAnswerer.of(boxes, index), known)


def prepare_ranking(
    session: SparkSession,
    subscriptions: Subscriptions,
    space: Space,
    *,
    relaxed: bool = False,
    combine: str = "sum",
    index: str = "auto",
    bad_rows: BadRows | None = None,
) -> Prepared:
    """Build a ranking structure over subscriptions, and ship it to the workers.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, or a file of subscriptions
    """
    check_rank_index(index)
    check_combine(combine, relaxed=relaxed)
    boxes, known = gathered(subscriptions, space, bad_rows)
    answerer = RankAnswerer.of(boxes, index, relaxed=relaxed, combine=combine)
    return Prepared.of(session, answerer, known)


def gathered(
    subscriptions: Subscriptions | EncodedSet, space: Space, bad_rows: BadRows | None = None
) -> tuple[Boxes, Space]:
    """Return subscriptions on the driver, with ids that Spark takes, and the space they are of."""
    if isinstance(subscriptions, DataFrame):
        subscriptions = encode(subscriptions, space)
    if isinstance(subscriptions, EncodedSet):
        known = subscriptions.space
        boxes = gather(subscriptions.rows, known, bad_rows)
    else:
        boxes, known = loaded(subscriptions, space)
    if not pa.types.is_integer(boxes.ids.type):
        boxes = replace(boxes, ids=boxes.ids.cast(pa.string()))
    return boxes, known


def loaded(subscriptions: Boxes | str | Path, space: Space) -> tuple[Boxes, Space]:
    """Return the boxes of a snapshot, a file or `Boxes`, and the space they are of."""
    if isinstance(subscriptions, str | Path) and (Path(subscriptions) / MANIFEST).exists():
        boxes, known = load_boxes(subscriptions)
        if known.definition() != space.definition():
            raise UsageError(f"{subscriptions}: is a snapshot of {known}, expected: {space}")
        return boxes, known
    return as_boxes(subscriptions, space), space
