"""Which subscriptions answer a batch: the version that it is pinned to, or one set for all."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark.steps.prepared import Prepared, prepare
from rangecast.spark.steps.question import is_large
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions

_READY = 2
"""Versions that are held at a time: the last one, and the one that follows it."""


@dataclass(frozen=True)
class ReadySet:
    """A set that events can be matched with, many times."""

    subscriptions: Prepared | Boxes
    """Boxes are cut by space again for each batch, as its events lie."""
    rows: int
    space: Space
    """Of the set, with the words that it mentions."""
    index: str
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

    def ready(self, session: SparkSession, version: int) -> ReadySet:
        """Return the set of a version."""


class VersionedSet:
    """A folder of versions, perhaps fed by edits; each batch is pinned to one of them."""

    def __init__(
        self,
        versions: Versions,
        space: Space,
        *,
        index: str = "auto",
        plan: str = "auto",
        edits: Edits | None = None,
        keep_versions: int | None = None,
    ):
        self.space = space
        self.versions = versions
        self._index = index
        self._plan = plan
        self._edits = edits
        self._keep = keep_versions
        self._held: OrderedDict[int, ReadySet] = OrderedDict()

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

    def ready(self, session: SparkSession, version: int) -> ReadySet:
        """Return a version's subscriptions, ready for matching."""
        if version not in self._held:
            boxes, known = self.versions.load(version)
            if known.definition() != self.space.definition():
                path = self.versions.path(version)
                raise UsageError(f"{path}: is of the space {known}, expected: {self.space}")
            self._held[version] = _ready(session, boxes, known, self._index, self._plan)
            if len(self._held) > _READY:
                _, old = self._held.popitem(last=False)
                if isinstance(old.subscriptions, Prepared):  # else a long stream fills the disk
                    old.subscriptions.release()
        return self._held[version]


class StaticSet:
    """One set for all batches."""

    def __init__(
        self,
        boxes: Boxes,
        space: Space,
        *,
        index: str = "auto",
        plan: str = "auto",
        version: int = 0,
    ):
        self.space = space
        self._boxes = boxes
        self._index = index
        self._plan = plan
        self._version = version
        self._held: ReadySet | None = None

    def refresh(self) -> int:
        return 0

    def latest(self) -> int:
        return self._version

    def pin(self, stream: str, batch: int) -> int:
        return self._version

    def ready(self, session: SparkSession, version: int) -> ReadySet:
        if self._held is None:
            self._held = _ready(session, self._boxes, self.space, self._index, self._plan)
        return self._held


def _ready(session: SparkSession, boxes: Boxes, space: Space, index: str, plan: str) -> ReadySet:
    if plan == "partitioned" or (plan == "auto" and is_large(boxes)):
        return ReadySet(boxes, boxes.rows, space, index, "partitioned")
    prepared = prepare(session, boxes, space, index=index)
    return ReadySet(prepared, boxes.rows, space, "auto", "broadcast")  # it has its index
