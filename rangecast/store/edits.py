"""A table of edits as the source of versions: each file that arrives makes the next version.

The files lie in one folder, in any format of `model.files`, with the columns `id`, `op`
(subscribe, replace or unsubscribe), `filter` and `score`. Without a score a new subscription has
0, and one that is replaced keeps its own. Files that are new are applied in the order of their
names, row by row, to the newest version; a version knows the files that went into it, so none is
applied twice, whatever crashes. Names that start with `.` or `_` are passed over: write a file
under such a name and rename it when it is complete.

An edit that can't be applied (a filter that can't be read, an id that isn't there) is refused and
kept with its reason beside the version; the others go on.
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
from rangecast.errors import FileError, RangecastError, UsageError, near
from rangecast.model.attributes import Number
from rangecast.model.batch import Batch, text_at, value_at
from rangecast.model.encode import encode, explain
from rangecast.model.files import format_of, read_batches
from rangecast.model.ids import as_ids, id_type
from rangecast.model.space import Space
from rangecast.store.versions import Versions

COLUMNS = ("id", "op", "filter", "score")
OPS = ("subscribe", "replace", "unsubscribe")
_SCORE = Number("score")


@dataclass(frozen=True)
class Edits:
    """A folder of edit files that feeds a folder of versions."""

    folder: Path
    versions: Versions
    space: Space
    """Of the first version, if the edits are to make that too."""

    def apply(self) -> int | None:
        """Publish the version that the new files make, and return its number; `None`: no news."""
        while True:
            base = max(self.versions.all(), default=0)
            known = set(self.versions.edit_files(base)) if base else set()
            files = [path for path in self._files() if path.name not in known]
            if not files:
                return None
            engine = self._engine(base)
            refused = list(_applied(engine, files))
            engine.wait_for_rebuild()
            names = [path.name for path in files]
            boxes, space = engine.boxes(), engine.space
            version = self.versions.publish(boxes, space, edits=names, refused=refused, after=base)
            if version is not None:
                return version

    def _files(self) -> list[Path]:
        if not self.folder.is_dir():
            raise FileError(f"{self.folder}: no such folder of edits")
        return sorted(path for path in self.folder.iterdir() if path.name[0] not in "._")

    def _engine(self, base: int) -> Engine:
        if not base:
            return Engine(self.space, index="scan")
        boxes, space = self.versions.load(base)
        engine = Engine(space, index="scan")
        engine.subscribe_many(boxes)
        return engine


def _applied(engine: Engine, files: list[Path]) -> Iterator[dict[str, Any]]:
    """Apply all edits of some files; yield those that are refused."""
    kind = engine.boxes().ids.type if len(engine) else _common_kind(files)
    for path in files:
        for batch in read_batches(path):
            _check_columns(path, list(batch.columns))
            for row, edit, reason in _rows(batch, kind):
                try:
                    if reason is not None:
                        raise UsageError(reason)
                    _apply(engine, edit)
                except RangecastError as error:
                    yield {"file": path.name, "row": row, **edit, "reason": str(error)}


def _common_kind(files: list[Path]) -> pa.DataType:
    """Return the type of ids of a set that begins with these files."""
    batches = chain.from_iterable(read_batches(path) for path in files)
    columns = (batch.columns["id"] for batch in batches if "id" in batch.columns)
    return id_type(columns, texts_too=format_of(files[0]) in ("csv", "jsonl")) or pa.int64()


def _check_columns(path: Path, names: list[str]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise FileError(f"{path}: unknown column {unknown[0]!r}: {near(unknown[0], COLUMNS)}")
    if "id" not in names or "op" not in names:
        raise FileError(
            f"{path}: edits need 'id' and 'op', and 'filter' and 'score' where they apply; "
            f"found: {', '.join(names)}"
        )


def _rows(batch: Batch, kind: pa.DataType) -> Iterator[tuple[int, dict[str, Any], str | None]]:
    """Yield the number of each row, its edit, and why it can't be one."""
    none = pa.nulls(len(batch.rows))
    given = {name: batch.columns.get(name, none) for name in COLUMNS}
    ids, _ = as_ids(given["id"], kind)
    scores, bad = encode(_SCORE, given["score"])
    for place, (row, one, score) in enumerate(
        zip(batch.rows.tolist(), ids.to_pylist(), scores.tolist(), strict=True)
    ):
        op, text = (value_at(given[name], place) for name in ("op", "filter"))
        edit = {"id": one, "op": op, "filter": text, "score": None if np.isposinf(score) else score}
        reason = None
        if one is None:
            edit["id"] = text_at(given["id"], place)
            reason = f"an id is {'an integer' if pa.types.is_integer(kind) else 'a text'}, as are "
            reason += "the others of the set"
        elif bad[place]:
            edit["score"] = text_at(given["score"], place)
            reason = explain(_SCORE, given["score"], place)
        yield row, edit, reason


def _apply(engine: Engine, edit: dict[str, Any]) -> None:
    one, op, text = edit["id"], edit["op"], edit["filter"]
    if op == "unsubscribe":
        engine.unsubscribe(one)
    elif op not in OPS:
        raise UsageError(f"an op is {', '.join(OPS)}; given: {op!r}")
    elif not isinstance(text, str):
        raise UsageError(f"to {op} takes a filter; given: {text!r}")
    elif op == "subscribe":
        engine.subscribe(one, text, score=edit["score"] or 0.0)
    else:
        engine.replace(one, text, score=edit["score"])
