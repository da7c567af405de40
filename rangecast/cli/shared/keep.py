"""The option `--keep`: columns of events and subscriptions that are copied to the result."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rangecast.cli.shared.run import Run
from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import EventFile
from rangecast.model.io.kept_columns import identified, kept_rows, kept_schema
from rangecast.model.io.records import file_source
from rangecast.model.sets.ids import Places
from rangecast.store.versions import is_set


class KeptColumns(NamedTuple):
    """The columns to keep."""

    names: tuple[str, ...]
    events: pa.Schema
    """Kept columns of events; they travel with the ids, as a struct."""
    subscriptions: pa.Table
    """Kept columns of subscriptions, by row of the set."""
    ids: pa.Array
    """Ids of the subscriptions."""

    def schema(self, answers: pa.Schema) -> pa.Schema:
        """Return the columns of the answers, followed by the kept ones."""
        fields = [*answers]
        for side, schema in (("event", self.events), ("subscription", self.subscriptions.schema)):
            other = self.subscriptions.schema if side == "event" else self.events
            for column in schema:
                is_taken = column.name in answers.names or column.name in other.names
                name = f"{side}_{column.name}" if is_taken else column.name
                fields.append(pa.field(name, column.type))
        names = [field.name for field in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(
                f"--keep would create two result columns {twice!r}\n"
                "  hint: rename one of the columns"
            )
        return pa.schema(fields)

    def rows_of(self, ids: pa.Array) -> pa.Array:
        """Return the rows of subscriptions by id."""
        return pa.array(Places(self.ids).find(ids) if self.subscriptions.num_columns else [])

    def columns(self, events: pa.Array, rows: pa.Array) -> list[pa.Array]:
        """Return the ids of the events, and the kept columns of these events and subscriptions."""
        arrays = [events]
        if len(self.events):
            arrays = [pc.struct_field(events, at) for at in range(events.type.num_fields)]
            arrays[1:] = [
                column.cast(field.type)
                for column, field in zip(arrays[1:], self.events, strict=True)
            ]
        if self.subscriptions.num_columns:
            arrays += [field.combine_chunks() for field in self.subscriptions.take(rows).columns]
        return arrays


def kept_by(run: Run, events: EventFile, subscriptions: Path, boxes: Boxes) -> KeptColumns:
    """Return the columns that a run keeps; reject one that neither file has."""
    names = run.options.kept
    if not names:
        return KeptColumns(names, pa.schema([]), pa.table({}), boxes.ids)
    table = pa.table({})
    if not is_set(subscriptions):
        source = identified(file_source(run.file(subscriptions)), run.options.subscription_id)
        schema = kept_schema(source, names)
        if len(schema):
            table = kept_rows(source, boxes.ids, schema)
    known = {*events.kept.names, *table.column_names}
    absent = [name for name in names if name not in known]
    if absent:
        raise UsageError(
            f"--keep {absent[0]}: neither events nor subscriptions have this column\n"
            "  hint: name a column of one of the two files"
        )
    return KeptColumns(names, events.kept, table, boxes.ids)
