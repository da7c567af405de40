"""Prepared subscriptions, which `match` and `rank` can use many times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rangecast.errors import UsageError
from rangecast.match.answerer import MatchAnswerer
from rangecast.match.choose import check_index as check_match_index
from rangecast.model.answers.answerer import Answerer, Choice, warm
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import PLAIN
from rangecast.model.io.batch import Batch
from rangecast.model.io.records import Rows
from rangecast.model.io.rejected import CollectedRows, RejectedRows
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_boxes
from rangecast.rank.answerer import RankAnswerer
from rangecast.rank.choose import check_index as check_rank_index
from rangecast.rank.scores.combine import check_combine
from rangecast.spark.columns import arrow_ids, as_spark_ids, need_attributes
from rangecast.spark.session import job_name
from rangecast.spark.shipped import ShippedObject, ship
from rangecast.spark.steps.shards.build import (
    Make,
    build_shards,
    build_shards_of_boxes,
    hull_of,
    in_space,
)
from rangecast.spark.steps.shards.explain import explain_shards
from rangecast.spark.steps.shards.memory import room_of_structure, shards_wanted
from rangecast.spark.steps.shards.sharded_set import Shard, ShardedSet
from rangecast.spark.subscriptions.kept import (
    KeptSet,
    SetSize,
    gather_small,
    keep_rows,
)
from rangecast.store.layers import Layer, LayeredSet
from rangecast.store.versions import is_set, load_set

Subscriptions = DataFrame | Boxes | str | Path
"""A DataFrame, `Boxes`, a snapshot folder, a folder of versions, or a file of subscriptions."""

MAX_WORKER_MEMORY = 1 << 30
"""Memory of a worker, by default."""


@dataclass(frozen=True)
class Prepared:
    """Subscriptions shipped to the workers, in one shard or several, and their space."""

    space: Space
    """With every word that the subscriptions mention."""
    shipped_space: ShippedObject
    answerer: ShardedSet
    rows: int
    """Number of subscriptions."""
    width: int
    """Number of coordinates of an event: one per attribute, or more."""

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Shards of the set."""
        return self.answerer.shards

    @property
    def choice(self) -> Choice:
        """Index of the first shard, and why it was chosen."""
        return self.shards[0].choice

    @property
    def memory(self) -> int:
        """Size of the indexes in bytes."""
        return sum(shard.memory for shard in self.shards)

    def explain(
        self, events: DataFrame | None = None, *, sample: int = 1000, allow_missing: bool = False
    ) -> str:
        """Describe the set in a few lines, to be printed: shards, bytes, indexes.

        events          sample events, to report how many shards an event touches
        sample          how many of them are looked at; those that can't be used are left out
        allow_missing   whether events may lack the column of an attribute
        """
        points = None
        if events is not None:
            named = need_attributes(events, self.space, PLAIN, allow_missing=allow_missing)
            sampled = events.select([events[f"`{name}`"] for name in named]).limit(sample).toArrow()
            points = np.zeros((0, len(self.space)))
            with TEXTS.batch() as keep_texts:
                for batch in sampled.to_batches():
                    rows = Rows("events", Batch.of(batch), CollectedRows())
                    encoded = PLAIN.points_of(self.space, rows, "missing")
                    points = np.concatenate([points, encoded[rows.good]])
                keep_texts(points)
        return explain_shards(self.answerer, self.rows, points)

    def with_layers(
        self, session: SparkSession, layered_set: LayeredSet, layers: Sequence[Shard | None]
    ) -> Prepared:
        """Return the set with layers of edits on top; `None` is a layer that only removes.

        It has the shards of this one, and ships its space if there are new words.
        """
        if not layered_set.layers:
            return self
        same = layered_set.space.vocabularies == self.space.vocabularies
        base = [replace(shard, gone=layered_set.removed_from(0)) for shard in self.shards]
        more = [
            replace(shard, gone=layered_set.removed_from(number + 1))
            for number, shard in enumerate(layers)
            if shard is not None
        ]
        return replace(
            self,
            space=layered_set.space,
            shipped_space=self.shipped_space if same else ship(session, layered_set.space),
            answerer=replace(self.answerer.with_ids(layered_set.id_type), shards=(*base, *more)),
            rows=layered_set.rows,
        )

    def check(self, space: Space, kind: type[Answerer]) -> None:
        """Raise an error if the set was prepared for another space or another kind of query."""
        if self.space.definition() != space.definition():
            raise UsageError(f"the subscriptions were prepared for {self.space}, not for {space}")
        if not isinstance(self.answerer.empty, kind):
            made, needed = ("prepare_match", "prepare_rank")[:: 1 if kind is RankAnswerer else -1]
            raise UsageError(
                f"these subscriptions were prepared with {made}()\n  hint: use {needed}()"
            )

    def release(self) -> None:
        """Remove the indexes from the driver's host; the set can't be used afterwards."""
        for shard in self.shards:
            shard.shipped.release()
        self.shipped_space.release()


def prepare_match(
    session: SparkSession,
    subscriptions: Subscriptions,
    space: Space,
    *,
    index: str = "auto",
    rejected: RejectedRows | None = None,
    max_worker_memory: int = MAX_WORKER_MEMORY,
) -> Prepared:
    """Build a matching index over subscriptions, and ship it to the workers.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, a folder of versions (the newest is
                    taken), or a file of subscriptions
    max_worker_memory   memory that a worker should need, a target and no limit: a set that is too
                        large for it is built by the workers, in shards
    """
    check_match_index(index)
    make = match_maker(index, max_worker_memory)
    return prepare_answers(session, subscriptions, space, make, max_worker_memory, rejected)


def match_maker(index: str, max_worker_memory: int, device: str | None = None) -> Make:
    """Return a builder of matching answerers that suit workers with this memory."""
    memory = room_of_structure(max_worker_memory)
    return partial(MatchAnswerer.of, index=index, device=device, memory=memory)


def prepare_rank(
    session: SparkSession,
    subscriptions: Subscriptions,
    space: Space,
    *,
    relaxed: bool = False,
    combine: str = "sum",
    index: str = "auto",
    rejected: RejectedRows | None = None,
    max_worker_memory: int = MAX_WORKER_MEMORY,
) -> Prepared:
    """Build a ranking index over subscriptions, and ship it to the workers.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, a folder of versions (the newest is
                    taken), or a file of subscriptions
    max_worker_memory   memory that a worker should need, a target and no limit: a set that is too
                        large for it is built by the workers, in shards
    """
    check_rank_index(index)
    check_combine(combine, relaxed=relaxed)
    make = partial(RankAnswerer.of, index=index, relaxed=relaxed, combine=combine)
    return prepare_answers(session, subscriptions, space, make, max_worker_memory, rejected)


def prepare_answers(
    session: SparkSession,
    subscriptions: Subscriptions,
    space: Space,
    make: Make,
    max_worker_memory: int,
    rejected: RejectedRows | None = None,
    *,
    width: int | None = None,
) -> Prepared:
    """Build an answerer with `make` over subscriptions, whole or in shards, and ship it.

    `width` is the number of coordinates per event; default: one per attribute.
    """
    if max_worker_memory < 1:
        raise UsageError(
            f"max_worker_memory must be a number of bytes, 1 or more; given: {max_worker_memory!r}"
        )
    with (
        job_name(session, "prepare subscriptions"),
        _kept(subscriptions, space, max_worker_memory // 4, rejected) as (source, known),
    ):
        size = SetSize.of_boxes(source) if isinstance(source, Boxes) else source.size()
        wanted = shards_wanted(size, max_worker_memory)
        make = in_space(make, known)
        if wanted == 1:
            boxes = gathered(source, rejected)
            empty = _empty(make, boxes.ids.type, len(known))
            shards: tuple[Shard, ...] = (_whole(session, make(boxes), boxes),)
        elif isinstance(source, Boxes):
            empty = _empty(make, source.ids.type, len(known))
            shards = build_shards_of_boxes(session, source, make, wanted)
        else:
            with source.usable(size.errors, rejected) as kept:
                empty = _empty(make, arrow_ids(kept.rows.schema["id"].dataType), len(known))
                shards = build_shards(session, kept, make, size, wanted)
    width = len(known) if width is None else width
    if shards[0].shipped.folder is not None:
        warm(shards[0].shipped.open_here(), width)  # the workers find it compiled
    room = max(max_worker_memory // 2, max(shard.shipped.size for shard in shards))
    rows = sum(shard.rows for shard in shards)
    return Prepared(known, ship(session, known), ShardedSet(shards, empty, room), rows, width)


def layer_shard(session: SparkSession, layer: Layer, space: Space, make: Make) -> Shard:
    """Build and ship the subscriptions that a layer of edits added; `space` has its words."""
    boxes = replace(layer.boxes, ids=as_spark_ids(layer.boxes.ids), space=space)
    answerer = replace(in_space(make, space)(boxes), arrival=layer.arrival)
    lo, hi = hull_of(boxes)
    return Shard(ship(session, answerer), boxes.rows, answerer.memory, lo, hi, answerer.choice)


def _whole(session: SparkSession, answerer: Answerer, boxes: Boxes) -> Shard:
    all_lo, all_hi = np.full((2, boxes.dimensions), [[-np.inf], [np.inf]])
    shipped = ship(session, answerer)
    return Shard(shipped, boxes.rows, answerer.memory, all_lo, all_hi, answerer.choice)


def _empty(make: Make, ids: pa.DataType, dimensions: int) -> Answerer:
    none = np.zeros((0, dimensions))
    empty: Answerer = make(replace(Boxes.of(none, none), ids=pa.array([], ids)))
    return empty


@contextmanager
def _kept(
    subscriptions: Subscriptions, space: Space, limit: int, rejected: RejectedRows | None = None
) -> Iterator[tuple[KeptSet | Boxes, Space]]:
    """Provide subscriptions as boxes on the driver, or on the workers for a large DataFrame.

    limit   maximum bytes of a DataFrame on the driver
    """
    known = space
    if isinstance(subscriptions, DataFrame):
        boxes = gather_small(subscriptions, space, limit, rejected)
        if boxes is None:
            with keep_rows(subscriptions, space) as kept:
                yield kept, kept.space
            return
    else:
        boxes, known = loaded(subscriptions, space)
    yield replace(boxes, ids=as_spark_ids(boxes.ids)), known


def gathered(source: KeptSet | Boxes, rejected: RejectedRows | None = None) -> Boxes:
    """Return subscriptions on the driver, with ids of a type that Spark supports."""
    if isinstance(source, Boxes):
        return source
    boxes = source.gather(rejected)
    return replace(boxes, ids=as_spark_ids(boxes.ids))


def gathered_set(subscriptions: DataFrame, space: Space) -> tuple[Boxes, Space]:
    """Return the subscriptions of a DataFrame on the driver, and the space with their words."""
    with _kept(subscriptions, space, MAX_WORKER_MEMORY // 4) as (source, known):
        return gathered(source), known


def loaded(subscriptions: Boxes | str | Path, space: Space) -> tuple[Boxes, Space]:
    """Load the boxes of a snapshot, a file or `Boxes`, and their space."""
    if isinstance(subscriptions, str | Path) and is_set(subscriptions):
        boxes, known = load_set(subscriptions)
        if known.definition() != space.definition():
            raise UsageError(f"{subscriptions}: is a snapshot of {known}, expected: {space}")
        return boxes, known
    return as_boxes(subscriptions, space), space
