"""Which subscriptions answer a batch: the version that it is pinned to, or one set for all."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark.edits import Edits
from rangecast.spark.matching import Prepared, prepare
from rangecast.spark.versions import Versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PREPARED = 2
"""Versions that are held at a time: the last one, and the one that follows it."""


class Ready(NamedTuple):
    """A set that events can be matched with."""

    subscriptions: Prepared | DataFrame
    rows: int
    space: Space
    """Of the set, with the words that it mentions."""
    plan: str


class Subscriptions(Protocol):
    """What `answering` asks for."""

    space: Space

    def refresh(self) -> int:
        """Look for news; return how many edits were refused."""

    def latest(self) -> int:
        """Return the newest version."""

    def pin(self, stream: str, batch: int) -> int:
        """Return the version of a batch, always the same one."""

    def ready(self, session: SparkSession, version: int) -> Ready:
        """Return the set of a version."""


class Pinned:
    """A folder of versions, perhaps fed by edits; each batch is pinned to one of them."""

    def __init__(
        self,
        versions: Versions,
        space: Space,
        *,
        index: str = "auto",
        edits: Edits | None = None,
        keep_versions: int | None = None,
    ):
        self.space = space
        self.versions = versions
        self._index = index
        self._edits = edits
        self._keep = keep_versions
        self._prepared: OrderedDict[int, Prepared] = OrderedDict()

    def refresh(self) -> int:
        version = self._edits.apply() if self._edits is not None else None
        if self._keep is not None:
            self.versions.prune(keep=self._keep)
        return 0 if version is None else len(self.versions.refused(version))

    def latest(self) -> int:
        return self.versions.latest()

    def pin(self, stream: str, batch: int) -> int:
        return self.versions.pin(stream, batch)

    def ready(self, session: SparkSession, version: int) -> Ready:
        if version not in self._prepared:
            path = self.versions.path(version)
            self._prepared[version] = prepare(session, path, self.space, index=self._index)
            if len(self._prepared) > _PREPARED:
                self._prepared.popitem(last=False)
        return _ready(self._prepared[version])


class Fixed:
    """One set for the one batch of a batch job; a DataFrame is partitioned by space."""

    def __init__(
        self,
        subscriptions: DataFrame | Boxes | Path,
        space: Space,
        *,
        index: str = "auto",
        version: int = 0,
    ):
        self.space = space
        self._given = subscriptions
        self._index = index
        self._version = version
        self._ready: Ready | None = None

    def refresh(self) -> int:
        return 0

    def latest(self) -> int:
        return self._version

    def pin(self, stream: str, batch: int) -> int:
        return self._version

    def ready(self, session: SparkSession, version: int) -> Ready:
        if self._ready is None:
            if isinstance(self._given, Boxes | Path):
                prepared = prepare(session, self._given, self.space, index=self._index)
                self._ready = _ready(prepared)
            else:
                rows = self._given.count()
                self._ready = Ready(self._given, rows, self.space, "partitioned")
        return self._ready


def _ready(prepared: Prepared) -> Ready:
    return Ready(prepared, prepared.rows, prepared.space, "broadcast")
