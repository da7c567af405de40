"""Extraction of some subscriptions of a file, unchanged, to a file that every command reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rangecast.model.boxes import Boxes
from rangecast.model.io.files import one_table, read_batches
from rangecast.model.io.records import pass_over
from rangecast.model.sets.ids import Places, as_ids


def rows_of(path: str | Path, ids: pa.Array, id_column: str = "id") -> pa.Table:
    """Return the rows of these subscriptions in file order, with all columns.

    If several rows have the same id, the first is used, as when subscriptions are read. Ids get
    their common type.
    """
    wanted = Places(ids)
    waiting = np.ones(len(ids) + 1, np.bool_)
    waiting[-1] = False  # the place of what isn't wanted
    parts = []
    for batch in read_batches(path, pass_over):
        data = batch.arrow()
        names, _ = as_ids(data.column(id_column), ids.type)
        places = wanted.find(names)
        _, first = np.unique(places, return_index=True)
        taken = np.zeros(len(places), np.bool_)
        taken[first] = waiting[places[first]]
        waiting[places[taken]] = False
        at = data.schema.get_field_index(id_column)
        part = pa.Table.from_batches([data]).set_column(at, id_column, names)
        parts.append(part.filter(pa.array(taken)))
    return one_table(path, parts)


def named_by_row(boxes: Boxes) -> Boxes:
    """Replace ids by row numbers, which are compact; they are mapped back on output."""
    return replace(boxes, ids=pa.array(np.arange(boxes.rows)))
