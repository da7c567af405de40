"""Edits from a Delta table of subscriptions: its changes, version by version.

The first call puts all rows of the table into the folder of edits, each later one what changed
since (delta-rs reads it from the change data feed, or from the files that came and went). A file of
edits is named by the version of the table up to which it goes, and is put in place by a rename: so
nothing is applied twice, whatever crashes. A version of the table is applied whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangecast.errors import FileError, UsageError
from rangecast.model.io.atomic import atomic_file

_PREFIX = "delta-"
_TABLE = b"delta.table"
"""Key of the table's id in a file of edits: a table that is made in its place has another one."""
_COLUMNS = ("id", "filter", "score")
_UPSERTS = ("insert", "update_postimage")
_REMOVES = ("delete", "update_preimage")
_SCORES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_null,
)
"""Types of scores."""


class DeltaEdits:
    """Source of edits from a table `id, filter[, score]`; a call writes new ones to a folder."""

    def __init__(self, table: str, folder: Path, options: Mapping[str, Any] | None = None):
        self._path = table
        self._folder = folder
        self._options = {key: str(value) for key, value in (options or {}).items()}
        self._following = Lock()  # several streams of one process may share a set
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self) -> None:
        """Write the changes up to the newest version of the table to the folder."""
        with self._following:
            self._follow()

    def _follow(self) -> None:
        from deltalake.exceptions import DeltaError

        try:
            table = self._table()
            version, last = table.version(), self._last()
            table_id = str(table.metadata().id).encode()
            if last is None:
                rows = table.to_pyarrow_table(columns=self._columns(table.schema().to_arrow()))
                edits = _upserts(_plain(rows))
            elif version < last:
                raise UsageError(
                    f"{self._path}: has version {version}, but {last} was already applied: it is "
                    "another table\n  hint: continue with a new checkpoint"
                )
            elif self._table_of(last) not in (None, table_id):
                raise UsageError(
                    f"{self._path}: was removed and made again: rows of the old table would stay "
                    "in the set\n  hint: continue with a new checkpoint; to replace all rows of a "
                    "table, overwrite them"
                )
            elif version == last:
                return
            else:
                # Without an end it would be the newest version of now, perhaps a later one.
                feed = table.load_cdf(starting_version=last + 1, ending_version=version)
                changes = _plain(pa.table(feed))
                edits = _edits(changes, self._columns(changes.schema))
        except (DeltaError, OSError) as error:
            raise FileError(
                f"{self._path}: its changes can't be read: {error}\n"
                "  hint: if they were vacuumed, continue with a new checkpoint; the property "
                "delta.enableChangeDataFeed = true keeps them"
            ) from None
        with atomic_file(self._file(version)) as file:
            pq.write_table(edits.replace_schema_metadata({_TABLE: table_id}), file)

    def _table(self) -> Any:
        try:
            from deltalake import DeltaTable
        except ModuleNotFoundError:
            raise UsageError(
                "a Delta table requires delta-rs, which isn't installed\n"
                "  hint: pip install 'rangecast[delta]'"
            ) from None
        return DeltaTable(self._path, storage_options=self._options)

    def _last(self) -> int | None:
        """Return the version of the table up to which its changes are in the folder."""
        names = sorted(path.stem for path in self._folder.glob(f"{_PREFIX}*.parquet"))
        return int(names[-1].removeprefix(_PREFIX)) if names else None

    def _table_of(self, version: int) -> bytes | None:
        """Return the id of the table whose changes a file has; `None`: it doesn't say."""
        metadata = pq.read_schema(self._file(version)).metadata or {}
        return metadata.get(_TABLE)

    def _file(self, version: int) -> Path:
        return self._folder / f"{_PREFIX}{version:020}.parquet"

    def _columns(self, schema: Any) -> list[str]:
        present = [name for name in _COLUMNS if name in pa.schema(schema).names]
        if "id" not in present or "filter" not in present:
            raise FileError(
                f"{self._path}: a table of subscriptions must have the columns id, filter and "
                f"optionally score; given: {', '.join(pa.schema(schema).names)}"
            )
        if "score" in present:
            kind = pa.schema(schema).field("score").type
            if not any(fits(kind) for fits in _SCORES):
                raise FileError(
                    f"{self._path}: the column 'score' has the type {kind}; expected: numbers, or "
                    "texts that are numbers\n  hint: cast it, or leave it out"
                )
        return present


def _plain(rows: pa.Table) -> pa.Table:
    """Return rows of types that all functions of Arrow take, instead of views and voids."""
    plain = {pa.string_view(): pa.string(), pa.null(): pa.float64()}
    kinds = [plain.get(field.type, field.type) for field in rows.schema]
    return rows.cast(pa.schema(list(zip(rows.column_names, kinds, strict=True))))


def _upserts(rows: pa.Table) -> pa.Table:
    """Return rows as edits; a row without a score has 0, whatever the one before had."""
    if "score" not in rows.column_names:
        rows = rows.append_column("score", pa.nulls(rows.num_rows, pa.float64()))
    none = pa.scalar("0").cast(rows["score"].type)
    place = rows.column_names.index("score")
    rows = rows.set_column(place, "score", pc.fill_null(rows["score"], none))
    return rows.append_column("op", pa.array(["upsert"] * rows.num_rows, pa.string()))


def _edits(changes: pa.Table, columns: list[str]) -> pa.Table:
    """Return the edits of a change feed, in the order of the table's versions."""
    parts = []
    for version in sorted(set(changes["_commit_version"].to_pylist())):
        of_version = changes.filter(pc.equal(changes["_commit_version"], version))
        kind = of_version["_change_type"]
        new = of_version.filter(pc.is_in(kind, pa.array(_UPSERTS))).select(columns)
        gone = of_version.filter(pc.is_in(kind, pa.array(_REMOVES))).select(columns)
        # A row that is updated, or only copied to another file, is both; its place stays.
        gone = gone.filter(pc.invert(pc.is_in(gone["id"], new["id"].combine_chunks())))
        op = pa.array(["remove"] * gone.num_rows, pa.string())
        parts += [gone.append_column("op", op), _upserts(new)]
    if not parts:
        return _upserts(changes.select(columns).slice(0, 0))
    return pa.concat_tables(parts, promote_options="default")
