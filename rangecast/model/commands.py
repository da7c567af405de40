"""Edits of a set, one per row of a file or table, applied in row order.

Columns: `command` (subscribe, unsubscribe or replace), `id`, and the columns of subscriptions:
`filter`, or <attribute>_lo and <attribute>_hi, which are empty for an unsubscribe. With events,
`before` is the event that the edit precedes. `seq` is optional.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import DuplicateIdError, RejectedRowError, UnknownIdError, UsageError
from rangecast.kernels.arrays import Bool
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.subscriptions import encode_subscriptions, exact_columns
from rangecast.model.forward import Forwards
from rangecast.model.io.files import format_of, one_table, read_batches
from rangecast.model.io.tables import table_of
from rangecast.model.sets.ids import NO_ID, as_ids, id_type
from rangecast.model.sets.members import Id
from rangecast.model.space import Space

WORDS = ("subscribe", "unsubscribe", "replace")


class Commands(NamedTuple):
    """Edits in order."""

    words: list[str]
    ids: pa.Array
    boxes: Boxes
    """Boxes of all edits but unsubscribes, in order; their ids are the rows of the edits."""
    before: list[Any] | None
    """As given; `None`: there is no such column."""

    def check(self, known: Container[Id]) -> None:
        """Reject all edits if any of them would fail on a set with these ids."""
        live: dict[Id, bool] = {}
        for at, (word, id_) in enumerate(zip(self.words, self.ids.to_pylist(), strict=True)):
            exists = live.get(id_, id_ in known)
            if exists == (word == "subscribe"):
                wrong = "already exists" if exists else "doesn't exist"
                error = DuplicateIdError if exists else UnknownIdError
                raise error(f"command {at}: subscription {id_!r} {wrong}; no command was applied")
            live[id_] = word != "unsubscribe"

    def messages(self, forwards: Forwards) -> pa.Table:
        """Return the messages to advertise, in order: command, action, subscription, exposed.

        A subscription is exposed if it is sent because its coverer is removed or shrinks.
        """
        table = forwards.table()
        own = self.ids.take(table["command"].combine_chunks())
        names = table["id"].combine_chunks().cast(self.ids.type)
        sent = pc.equal(table["action"].combine_chunks(), "subscribe")
        exposed = pc.and_(sent, pc.not_equal(names, own))
        columns = {"command": table["command"], "action": table["action"], "subscription": names}
        return pa.table({**columns, "exposed": exposed})

    def runs(self) -> Iterator[tuple[str, int, int]]:
        """Yield runs of edits that can be applied together: command, first index, count.

        A replace is always a run of its own, because the next one may have the same id.
        """
        first = 0
        for word, equal in groupby(self.words):
            size = len([*equal])
            for count in [1] * size if word == "replace" else [size]:
                yield word, first, count
                first += count


def as_commands(value: Any, space: Space, kind: type | None = None) -> Commands:
    """Read edits from a file or table; return existing `Commands` unchanged.

    `kind` is the id type of the set: in CSV and JSON Lines, `7` may be a text or an integer.
    """
    if isinstance(value, Commands):
        return value
    table, texts_too, source = _table(value, space)
    if not table.column_names and not len(table):  # nothing at all lacks nothing
        return Commands([], pa.array([], pa.int64()), _no_boxes(space), None)
    if not {"command", "id"} <= set(table.column_names):
        names = ", ".join(table.column_names)
        raise UsageError(
            f"{source}: commands require the columns 'command' and 'id'; given: {names}"
        )
    words: list[Any] = table["command"].to_pylist()
    for at, word in enumerate(words):
        if word not in WORDS:
            raise UsageError(
                f"{source}: command {at} is {word!r}; expected: {', '.join(WORDS)}\n"
                "  hint: correct it; no command was applied"
            )
    column = table["id"].combine_chunks()
    type_of_ids = id_type([column], texts_too=texts_too)
    if texts_too and kind is not None:
        type_of_ids = pa.int64() if kind is int else pa.large_string()
    ids, wrong = as_ids(column, type_of_ids)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise UsageError(f"{source}: command {at} has the id {column[at]}; {NO_ID}")
    comes = np.array([word != "unsubscribe" for word in words], np.bool_)
    before = table["before"].to_pylist() if "before" in table.column_names else None
    return Commands(words, ids, _boxes(table, comes, space, source), before)


def _table(value: Any, space: Space) -> tuple[pa.Table, bool, str]:
    """Return the rows, whether text ids may stand for integers, and the source's name."""
    if not isinstance(value, str | Path):
        return table_of(value, "commands"), False, "commands"
    batches = [batch.arrow() for batch in read_batches(value, exact=exact_columns(space))]
    table = one_table(value, [pa.Table.from_batches([batch]) for batch in batches])
    return table, format_of(value) in ("csv", "jsonl"), str(value)


def _boxes(table: pa.Table, comes: Bool, space: Space, source: str) -> Boxes:
    """Return the boxes of edits. Other columns of an unsubscribe are ignored."""
    own = [name for name in ("command", "id", "seq", "before") if name in table.column_names]
    mask = pa.array(comes, pa.bool_())
    columns = {"id": pa.array(np.arange(len(table)))}
    for name in table.drop_columns(own).column_names:
        values, rest = table[name].combine_chunks(), None
        if name == "filter":
            values, rest = values.cast(pa.large_string()), "true"
        columns[name] = pc.if_else(mask, values, pa.scalar(rest, values.type))
    if not comes.any():
        return _no_boxes(space)
    try:
        boxes = encode_subscriptions(columns, space, noun=source)
    except RejectedRowError as error:  # never skipped: later commands may need it
        raise UsageError(f"{error}; no command was applied") from None
    return boxes if comes.all() else boxes.take(np.flatnonzero(comes))


def _no_boxes(space: Space) -> Boxes:
    return Boxes.of(np.zeros((0, len(space))), np.zeros((0, len(space))))
