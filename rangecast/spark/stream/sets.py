"""Which subscriptions answer a batch: the version that it is pinned to, or one set for all."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from pyspark.sql import SparkSession

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark.steps.prepared import WORKER_BYTES, Prepared, layer_shard, prepare
from rangecast.spark.steps.shards import Shard
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions

_READY = 2
"""Versions that are held at a time: the last one, and the one that follows it."""


class Subscriptions(Protocol):
    """What `answering` asks for."""

    space: Space

    def refresh(self) -> int:
        """Look for news; return how many edits were refused."""

    def latest(self) -> int:
        """Return the newest version."""

    def pin(self, stream: str, batch: int) -> int:
        """Return the version of a batch, always the same one."""

    def ready(self, session: SparkSession, version: int) -> Prepared:
        """Return the set of a version."""


class VersionedSet:
    """A folder of versions, perhaps fed by edits; each batch is pinned to one of them."""

    def __init__(
        self,
        versions: Versions,
        space: Space,
        *,
        index: str = "auto",
        worker_bytes: int = WORKER_BYTES,
        edits: Edits | None = None,
        keep_versions: int | None = None,
    ):
        self.space = space
        self.versions = versions
        self._index = index
        self._worker_bytes = worker_bytes
        self._edits = edits
        self._keep = keep_versions
        self._held: OrderedDict[int, Prepared] = OrderedDict()
        self._bases: dict[int, Prepared] = {}
        self._layers: dict[int, Shard] = {}

    def refresh(self) -> int:
        """Apply new edits, remove old versions, and return how many edits were refused."""
        version = self._edits.apply() if self._edits is not None else None
        if self._keep is not None:
            self.versions.prune(keep=self._keep)
        return 0 if version is None else len(self.versions.refused(version))

    def latest(self) -> int:
        """Return the number of the newest version."""
        return self.versions.latest()

    def pin(self, stream: str, batch: int) -> int:
        """Return the version that answers a batch: the newest, and the same if asked again."""
        return self.versions.pin(stream, batch)

    def ready(self, session: SparkSession, version: int) -> Prepared:
        """Return a version's subscriptions, ready for matching.

        What a version has in common with the one before is shipped already: after an edit, only
        what it changed is.
        """
        if version not in self._held:
            self._held[version] = self._ready(session, version)
            if len(self._held) > _READY:
                _, old = self._held.popitem(last=False)
                self._let_go(old)
        return self._held[version]

    def _ready(self, session: SparkSession, version: int) -> Prepared:
        base, layers = self.versions.parts(version)
        found = self.versions.layered(version)
        if found.space.definition() != self.space.definition():
            path = self.versions.path(version)
            raise UsageError(f"{path}: is of the space {found.space}, expected: {self.space}")
        if base not in self._bases:
            self._bases[base] = prepare(
                session,
                found.base,
                found.space,
                index=self._index,
                worker_bytes=self._worker_bytes,
            )
        for number, layer in zip(layers, found.layers, strict=True):
            if number not in self._layers and layer.boxes.rows:
                self._layers[number] = layer_shard(session, layer, self._index)
        return self._bases[base].with_layers(session, found, [self._layers.get(n) for n in layers])

    def _let_go(self, old: Prepared) -> None:
        """Release what no version needs that is held: else a long stream fills the disk."""
        if all(old.shipped_space != base.shipped_space for base in self._bases.values()):
            old.shipped_space.release()
        needed = [self.versions.parts(version) for version in self._held]
        bases = {base for base, _ in needed}
        layers = {layer for _, some in needed for layer in some}
        for number in set(self._bases) - bases:
            self._bases.pop(number).release()
        for number in set(self._layers) - layers:
            self._layers.pop(number).shipped.release()


class StaticSet:
    """One set for all batches."""

    def __init__(
        self,
        boxes: Boxes,
        space: Space,
        *,
        index: str = "auto",
        worker_bytes: int = WORKER_BYTES,
        version: int = 0,
    ):
        self.space = space
        self._boxes = boxes
        self._index = index
        self._worker_bytes = worker_bytes
        self._version = version
        self._held: Prepared | None = None

    def refresh(self) -> int:
        return 0

    def latest(self) -> int:
        return self._version

    def pin(self, stream: str, batch: int) -> int:
        return self._version

    def ready(self, session: SparkSession, version: int) -> Prepared:
        if self._held is None:
            self._held = prepare(
                session,
                self._boxes,
                self.space,
                index=self._index,
                worker_bytes=self._worker_bytes,
            )
        return self._held
