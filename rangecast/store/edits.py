"""A folder of edit files as the source of versions: each new file makes the next version.

The files lie in one folder, in any format of `model.files`, with the columns `id`, `op`
(subscribe, replace or unsubscribe; or upsert and remove, which take an id whether it is there or
not), `filter` and `score`. Without a score a new subscription has 0, and one that is replaced keeps
its own. Files that are new are applied in the order of their
names, row by row, to the newest version; a version knows the files that went into it, so none is
applied twice, whatever crashes. Names that start with `.` or `_` are passed over: write a file
under such a name and rename it when it is complete.

An edit that can't be applied (a filter that can't be read, an id that isn't there) is rejected and
kept with its reason beside the version; the others are applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.engine import Engine
from rangecast.errors import FileError, RangecastError, UsageError, did_you_mean
from rangecast.kernels.arrays import I64
from rangecast.model.attributes.base import Number
from rangecast.model.encoding.columns import encode, explain
from rangecast.model.io.batch import Batch, text_at, value_at
from rangecast.model.io.files import format_of, read_batches
from rangecast.model.sets.ids import as_ids, id_type
from rangecast.model.space import Space
from rangecast.store.layers import Layer
from rangecast.store.versions import Versions

COLUMNS = ("id", "op", "filter", "score")
OPS = ("subscribe", "replace", "unsubscribe", "upsert", "remove")
_SCORE = Number("score")


class Edits:
    """A folder of edit files that feeds a folder of versions.

    space   of the first version, if the edits are to make that too
    """

    def __init__(self, folder: str | Path, versions: Versions, space: Space):
        self.folder = Path(folder)
        self.versions = versions
        self.space = space
        self._set: _EditedSet | None = None

    def apply(self) -> int | None:
        """Commit the version that new files make; return its number, `None` if there are none."""
        while True:
            base = max(self.versions.all(), default=0)
            known = set(self.versions.edit_files(base)) if base else set()
            files = [path for path in self._files() if path.name not in known]
            if not files:
                return None
            edited, self._set = self._set, None
            if edited is None or edited.version != base:
                edited = _EditedSet.of(self.versions, base, self.space)
            version = edited.commit(files)
            if version is not None:
                self._set = edited  # in memory, so that the next files need not read it all
                return version

    def _files(self) -> list[Path]:
        if not self.folder.is_dir():
            raise FileError(f"{self.folder}: no such folder of edits")
        return sorted(path for path in self.folder.iterdir() if path.name[0] not in "._")


@dataclass
class _EditedSet:
    """The newest version in memory, ready for edits."""

    versions: Versions
    version: int
    engine: Engine
    arrival: I64
    """Arrival numbers (`layers`) of the subscriptions that were loaded."""
    following: int
    """Arrival number of the first subscription added since then."""

    @classmethod
    def of(cls, versions: Versions, version: int, space: Space) -> _EditedSet:
        """Load a version; 0: a new set."""
        if not version:
            return cls(versions, 0, Engine(space, index="scan"), np.empty(0, np.int64), 0)
        layered = versions.layered(version)
        boxes, arrival = layered.whole()
        engine = Engine(layered.space, index="scan")
        engine.subscribe_many(boxes)
        return cls(versions, version, engine, arrival, layered.next_arrival)

    def commit(self, files: list[Path]) -> int | None:
        """Apply new files and commit the result; `None` if another version was committed first."""
        words = {name: len(known) for name, known in self.engine.space.vocabularies.items()}
        touched: dict[Any, int | None] = {}
        rejected = list(self._applied(files, touched))
        self.engine.wait_for_rebuild()
        names = [path.name for path in files]
        number = None
        if self.version:
            layer = self._layer(touched, words, names)
            number = self.versions.commit_layer(layer, after=self.version, rejected=rejected)
        if number is None:
            boxes, space = self.engine.boxes(), self.engine.space
            number = self.versions.commit(
                boxes, space, edits=names, rejected=rejected, after=self.version
            )
            if number is not None:  # a whole one, whose numbers are its rows
                edited = _EditedSet.of(self.versions, number, space)
                self.engine, self.arrival = edited.engine, edited.arrival
                self.following = edited.following
        if number is not None:
            self.version = number
        return number

    def _applied(
        self, files: list[Path], touched: dict[Any, int | None]
    ) -> Iterator[dict[str, Any]]:
        """Apply all edits of some files; yield the rejected ones.

        `touched` receives every changed id with its earlier arrival number, `None` if it is new.
        """
        kind = self.engine.id_type or _common_kind(files)
        for path in files:
            for batch in read_batches(path):
                _check_columns(path, list(batch.columns))
                for row, edit, reason in _rows(batch, kind):
                    try:
                        if reason is not None:
                            raise UsageError(reason)
                        before = self._number(edit["id"])
                        _apply(self.engine, edit)
                        touched.setdefault(edit["id"], before)
                    except RangecastError as error:
                        yield {"file": path.name, "row": row, **edit, "reason": str(error)}

    def _number(self, value: Any) -> int | None:
        if value not in self.engine:
            return None
        return int(self._numbers(self.engine.select([value])[1])[0])

    def _numbers(self, places: I64) -> I64:
        """Return the arrival numbers of subscriptions, in the engine's order."""
        read = len(self.arrival)
        later = self.following + places - read
        known = self.arrival[np.minimum(places, max(read - 1, 0))] if read else later
        return np.where(places < read, known, later)

    def _layer(
        self, touched: dict[Any, int | None], words: dict[str, int], files: list[str]
    ) -> Layer:
        boxes, places = self.engine.select([id_ for id_ in touched if id_ in self.engine])
        arrival = self._numbers(places)
        order = np.argsort(arrival)
        gone = np.array(sorted(number for number in touched.values() if number is not None))
        new = {name: known[words[name] :] for name, known in self.engine.space.vocabularies.items()}
        added = {name: parts_of for name, parts_of in new.items() if parts_of}
        return Layer(boxes.take(order), arrival[order], gone.astype(np.int64), added, files)


def _common_kind(files: list[Path]) -> pa.DataType:
    """Return the id type of a new set made of these files."""
    batches = chain.from_iterable(read_batches(path) for path in files)
    columns = (batch.columns["id"] for batch in batches if "id" in batch.columns)
    return id_type(columns, texts_too=format_of(files[0]) in ("csv", "jsonl")) or pa.int64()


def _check_columns(path: Path, names: list[str]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise FileError(
            f"{path}: unknown column {unknown[0]!r}: {did_you_mean(unknown[0], COLUMNS)}"
        )
    if "id" not in names or "op" not in names:
        raise FileError(
            f"{path}: edits require 'id' and 'op', and 'filter' and 'score' where they apply; "
            f"found: {', '.join(names)}"
        )


def _rows(batch: Batch, kind: pa.DataType) -> Iterator[tuple[int, dict[str, Any], str | None]]:
    """Yield the number of each row, its edit, and the reason if it is not a valid edit."""
    none = pa.nulls(len(batch.rows))
    columns = {name: batch.columns.get(name, none) for name in COLUMNS}
    ids, _ = as_ids(columns["id"], kind)
    scores, bad = encode(_SCORE, columns["score"])
    for index, (row, id_, score) in enumerate(
        zip(batch.rows.tolist(), ids.to_pylist(), scores.tolist(), strict=True)
    ):
        op, text = (value_at(columns[name], index) for name in ("op", "filter"))
        edit = {"id": id_, "op": op, "filter": text, "score": None if np.isposinf(score) else score}
        reason = None
        if id_ is None:
            edit["id"] = text_at(columns["id"], index)
            reason = f"an id is {'an integer' if pa.types.is_integer(kind) else 'a text'}, as are "
            reason += "the others of the set"
        elif bad[index]:
            edit["score"] = text_at(columns["score"], index)
            reason = explain(_SCORE, columns["score"], index)
        yield row, edit, reason


def _apply(engine: Engine, edit: dict[str, Any]) -> None:
    id_, op, text = edit["id"], edit["op"], edit["filter"]
    if op == "remove" and id_ not in engine:
        return
    if op in ("unsubscribe", "remove"):
        engine.unsubscribe(id_)
    elif op not in OPS:
        raise UsageError(f"op must be one of {', '.join(OPS)}; given: {op!r}")
    elif not isinstance(text, str):
        raise UsageError(f"{op} requires a filter; given: {text!r}")
    elif op == "subscribe" or (op == "upsert" and id_ not in engine):
        engine.subscribe(id_, text, score=edit["score"] or 0.0)
    else:
        engine.replace(id_, text, score=edit["score"])
