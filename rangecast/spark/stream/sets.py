"""Subscriptions that answer a batch: the version it is pinned to, or one set for all batches.

A set says what its versions are (`VersionedSet`, `FixedSet`, `CoveredSet`); `ReadySets` builds the
structures of a step over them, and `MergedSet` the summaries that filter events.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from rangecast.cover.batch import covered_by
from rangecast.errors import UsageError
from rangecast.merge.summary import Summary
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark.shipped import ShippedObject, ship
from rangecast.spark.steps.filter import Prefilter
from rangecast.spark.steps.prepared import (
    MAX_WORKER_MEMORY,
    Prepared,
    gathered_set,
    layer_shard,
    prepare_answers,
)
from rangecast.spark.steps.shards.build import Make
from rangecast.spark.steps.shards.sharded_set import Shard
from rangecast.store.edits import Edits
from rangecast.store.layers import LayeredSet
from rangecast.store.versions import Versions

_READY = 2
"""Versions that are held at a time: the last one, and the one that follows it."""


class Subscriptions(Protocol):
    """A set that may change between batches."""

    space: Space

    @property
    def base(self) -> Subscriptions:
        """The set that this one is made of, in the end; itself if it is made of no other."""

    def refresh(self) -> int:
        """Apply new edits; return the number of rejected edits."""

    def latest(self) -> int:
        """Return the newest version."""

    def pin(self, stream: str, batch: int) -> int:
        """Return the version of a batch, always the same one."""

    def at(self, version: int) -> LayeredSet | DataFrame:
        """Return the subscriptions of a version."""

    def parts(self, version: int) -> tuple[int, list[int]]:
        """Return the version that it is based on, and those that have its layers of edits."""


class VersionedSet:
    """A folder of versions, perhaps fed by edits; each batch is pinned to one of them."""

    def __init__(
        self,
        versions: Versions,
        space: Space,
        *,
        edits: Edits | None = None,
        keep_versions: int | None = None,
    ):
        self.space = space
        self.versions = versions
        self.base = self
        self._edits = edits
        self._keep = keep_versions
        self._refreshing = Lock()  # several streams of one process may share a set

    def refresh(self) -> int:
        """Apply new edits, remove old versions, and return how many edits were rejected."""
        with self._refreshing:
            version = self._edits.apply() if self._edits is not None else None
            if self._keep is not None:
                self.versions.prune(keep=self._keep)
            return 0 if version is None else len(self.versions.rejected(version))

    def latest(self) -> int:
        """Return the number of the newest version."""
        return self.versions.latest()

    def pin(self, stream: str, batch: int) -> int:
        """Return the version pinned to a batch: the newest at first, the same one on a retry."""
        return self.versions.pin(stream, batch)

    def at(self, version: int) -> LayeredSet:
        """Return a version: a whole set, and layers of edits over it."""
        layered = self.versions.layered(version)
        if layered.space.definition() != self.space.definition():
            path = self.versions.path(version)
            raise UsageError(
                f"{path}: belongs to the space {layered.space}, expected: {self.space}"
            )
        return layered

    def parts(self, version: int) -> tuple[int, list[int]]:
        """Return the version that it is based on, and those that have its layers of edits."""
        return self.versions.parts(version)


class FixedSet:
    """One set for all batches: `Boxes`, or a DataFrame of subscriptions."""

    def __init__(self, subscriptions: Boxes | DataFrame, space: Space, version: int = 0):
        self.space = space
        self.base = self
        self._given = subscriptions
        self._version = version

    def refresh(self) -> int:
        """Return 0: no edits are rejected."""
        return 0

    def latest(self) -> int:
        """Return the number of the only version."""
        return self._version

    def pin(self, stream: str, batch: int) -> int:
        """Return the number of the only version."""
        return self._version

    def at(self, version: int) -> LayeredSet | DataFrame:
        """Return the set."""
        boxes = self._given
        return LayeredSet(boxes, (), self.space) if isinstance(boxes, Boxes) else boxes

    def read_once(self, closing: ExitStack) -> None:
        """Let all users of the set have the same rows: a table may change between two reads."""
        if not isinstance(self._given, Boxes) and not self._given.is_cached:
            closing.callback(self._given.persist(StorageLevel.DISK_ONLY).unpersist)

    def parts(self, version: int) -> tuple[int, list[int]]:
        """Return the only version."""
        return version, []


class CoveredSet:
    """The uncovered subscriptions of another set."""

    def __init__(self, of: Subscriptions):
        self.space = of.space
        self.base: Subscriptions = of.base
        self._of = of
        self._last: tuple[int, LayeredSet] | None = None
        self.refresh, self.latest, self.pin = of.refresh, of.latest, of.pin

    def at(self, version: int) -> LayeredSet:
        """Return the uncovered subscriptions of a version."""
        last = self._last  # another stream of this process may ask for another version
        if last is None or last[0] != version:
            boxes, space = whole(self._of, version)
            kept = boxes.take(np.flatnonzero(covered_by(boxes) < 0))
            self._last = last = version, LayeredSet(kept, (), space)
        return last[1]

    def parts(self, version: int) -> tuple[int, list[int]]:
        """Return the version itself: an edit may change the covering anywhere."""
        return version, []


def whole(subscriptions: Subscriptions, version: int) -> tuple[Boxes, Space]:
    """Return all subscriptions of a version on the driver, and the space with their words."""
    set_ = subscriptions.at(version)
    if isinstance(set_, LayeredSet):
        return set_.whole()[0], set_.space
    return gathered_set(set_, subscriptions.space)


class ReadySets:
    """The structures of a step over the versions of a set, built on demand."""

    def __init__(
        self, subscriptions: Subscriptions, make: Make, max_worker_memory: int = MAX_WORKER_MEMORY
    ):
        self._of = subscriptions
        self._make = make
        self._max_worker_memory = max_worker_memory
        self._held: OrderedDict[int, Prepared] = OrderedDict()
        self._bases: dict[int, Prepared] = {}
        self._layers: dict[int, Shard] = {}

    def ready(self, session: SparkSession, version: int) -> Prepared:
        """Return the structure over a version.

        What a version has in common with the one before is shipped already: after an edit, only
        what it changed is.
        """
        if version not in self._held:
            self._held[version] = self._ready(session, version)
            if len(self._held) > _READY:
                _, old = self._held.popitem(last=False)
                self._release_unused(old)
        return self._held[version]

    def _ready(self, session: SparkSession, version: int) -> Prepared:
        base, layers = self._of.parts(version)
        set_ = self._of.at(version)
        if base not in self._bases:
            self._bases[base] = prepare_answers(
                session,
                set_.base if isinstance(set_, LayeredSet) else set_,
                set_.space if isinstance(set_, LayeredSet) else self._of.space,
                self._make,
                self._max_worker_memory,
            )
        if not isinstance(set_, LayeredSet):
            return self._bases[base]
        for number, layer in zip(layers, set_.layers, strict=True):
            if number not in self._layers and layer.boxes.rows:
                self._layers[number] = layer_shard(session, layer, set_.space, self._make)
        return self._bases[base].with_layers(session, set_, [self._layers.get(n) for n in layers])

    def release(self) -> None:
        """Release all structures; one that is needed again is rebuilt."""
        of_bases = [base.shipped_space for base in self._bases.values()]
        for prepared in self._held.values():
            if prepared.shipped_space not in of_bases:
                prepared.shipped_space.release()
        for base in self._bases.values():
            base.release()
        for layer in self._layers.values():
            layer.shipped.release()
        for held in (self._held, self._bases, self._layers):
            held.clear()

    def _release_unused(self, old: Prepared) -> None:
        """Release what no held version needs, so that a long stream doesn't fill the disk."""
        if all(old.shipped_space != base.shipped_space for base in self._bases.values()):
            old.shipped_space.release()
        needed = [self._of.parts(version) for version in self._held]
        bases = {base for base, _ in needed}
        layers = {layer for _, names in needed for layer in names}
        for number in set(self._bases) - bases:
            self._bases.pop(number).release()
        for number in set(self._layers) - layers:
            self._layers.pop(number).shipped.release()


class ShippedSummary(NamedTuple):
    """A summary shipped to the workers."""

    prefilter: ShippedObject
    """A `Prefilter`."""
    space: ShippedObject
    """With the words of the subscriptions."""
    rows: int
    """Number of subscriptions."""


class MergedSet:
    """Summary of each version of a set, which filters out events that match nothing."""

    def __init__(self, of: Subscriptions, **options: Any):
        self.of = of
        self._options = options
        self._held: tuple[int, ShippedSummary] | None = None

    def summary(self, version: int) -> Summary:
        """Return the summary of a version; options are those of `rangecast.merge.Summary`."""
        boxes, space = whole(self.of, version)
        return Summary.of(boxes, space, **self._options)

    def ready(self, session: SparkSession, version: int) -> ShippedSummary:
        """Return the summary of a version, for the workers."""
        if self._held is None or self._held[0] != version:
            summary = self.summary(version)
            self.release()
            prefilter = ship(session, Prefilter(summary.cells, summary.ranges()))
            self._held = (
                version,
                ShippedSummary(prefilter, ship(session, summary.space), len(summary)),
            )
        return self._held[1]

    def release(self) -> None:
        """Release the summary; it is rebuilt when needed again."""
        if self._held is not None:
            self._held[1].prefilter.release()
            self._held[1].space.release()
            self._held = None
