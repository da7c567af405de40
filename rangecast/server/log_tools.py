"""Tools for the data folder of a stopped server: check, dump, export, repair."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.errors import FileError, UsageError
from rangecast.model.attributes.field_paths import value_at
from rangecast.model.io.durable import try_lock
from rangecast.model.space import Space
from rangecast.server.encoding import rows_of
from rangecast.server.log.acknowledged import NAME as MARK
from rangecast.server.log.acknowledged import EndMark
from rangecast.server.log.base import START, LogError, Unit, new_epoch
from rangecast.server.log.segment import (
    checked_units,
    path_of,
    segment_end,
    segments,
    wal_of,
    write_head,
)
from rangecast.server.state.boards import updates_of
from rangecast.server.state.edits import (
    ACKS,
    EDITS,
    EVENTS,
    TRANSITIONS,
    UPDATES,
    PutConsumer,
    acks_of,
    edits_of,
    events_of,
    hidden,
)
from rangecast.server.state.registry import Registry
from rangecast.server.state.snapshots import opened, snapshots
from rangecast.server.state.tracks.transitions import transitions_head, transitions_of

_encode = msgspec.json.Encoder().encode


def checked(folder: Path) -> str:
    """Read the whole log; return a summary, or raise an error that locates the damage."""
    _need_folder(folder)
    units = events = edits = updates = 0
    first = last = 0
    for unit in checked_units(folder):
        units += 1
        first, last = first or unit.first, unit.last
        events += unit.length if unit.kind == EVENTS else 0
        edits += unit.length if unit.kind == EDITS else 0
        updates += unit.length if unit.kind == UPDATES else 0
    if not units:
        return f"{folder}: the log is intact and empty."
    return (
        f"{folder}: the log is intact: seqs {first:,} to {last:,} in {units:,} units, "
        f"{events:,} events, {updates:,} updates of boards and {edits:,} edits."
    )


def dumped(folder: Path, after: int, *, with_secrets: bool = False) -> Iterator[str]:
    """Yield every event and edit as a JSON line; webhook secrets only on request."""
    _need_folder(folder)
    for unit in checked_units(folder):
        if unit.last > after:
            lines = _lines(unit, with_secrets=with_secrets)
            yield from (line for seq, line in lines if seq > after)


def _lines(unit: Unit, *, with_secrets: bool) -> Iterator[tuple[int, str]]:
    if unit.kind == EVENTS:
        head, texts = events_of(unit)
        for index, text in enumerate(texts):
            line: dict[str, Any] = {"seq": unit.first + index, "at": unit.at, "space": head.space}
            if head.numbers:
                line |= {"source": head.source, "number": head.numbers[index]}
            start = _encode(line | {"tenant": head.tenant})[:-1]
            yield unit.first + index, (start + b',"event":' + text + b"}").decode()
    elif unit.kind == EDITS:
        for index, edit in enumerate(edits_of(unit)):
            if isinstance(edit, PutConsumer) and not with_secrets:
                edit = msgspec.structs.replace(edit, delivery=hidden(edit.delivery))
            line = {"seq": unit.first + index, "at": unit.at, "edit": edit}
            yield unit.first + index, _encode(line).decode()
    elif unit.kind == UPDATES:
        top, changes = updates_of(unit)
        for index, change in enumerate(changes):
            line = {"seq": unit.first + index, "at": unit.at, "board": top.board}
            line |= {"tenant": top.tenant, "batch": top.is_batch, "update": change}
            yield unit.first + index, _encode(line).decode()
    elif unit.kind == TRANSITIONS:
        whose = transitions_head(unit)
        for index, transition in enumerate(transitions_of(unit)):
            line = {"seq": unit.first + index, "at": unit.at, "space": whose.space}
            line |= {"tenant": whose.tenant, "transition": transition}
            yield unit.first + index, _encode(line).decode()
    elif unit.kind == ACKS:
        line = {"seq": unit.first, "at": unit.at, "acks": acks_of(unit)}
        yield unit.first, _encode(line).decode()


def exported(folder: Path, tenant: str, space: str, output: Path) -> str:
    """Export a space, its events and its subscriptions to files; return a summary."""
    _need_folder(folder)
    if output.exists():
        raise FileError(f"{output}: already exists; remove it, or choose another folder")
    registry, after = Registry(), 0
    have = snapshots(folder)
    units = checked_units(folder)
    if have and have[0] and segments(folder)[0] > 1:
        _, registry, *_ = opened(folder, have[0])
        after = have[0]
    output.mkdir(parents=True)
    count = 0
    writer: pq.ParquetWriter | None = None
    try:
        for unit in units:
            if unit.kind == EDITS and unit.first > after:
                for _ in registry.apply(edits_of(unit), unit.first):
                    pass
            if unit.kind == EVENTS:
                head, lines = events_of(unit)
                if (head.tenant, head.space) == (tenant, space):
                    where = registry.space(tenant, space).space
                    table = _table(rows_of(lines, head.form), where, unit)
                    writer = writer or pq.ParquetWriter(output / "events.parquet", table.schema)
                    writer.write_table(table.cast(writer.schema))
                    count += len(lines)
    finally:
        if writer is not None:
            writer.close()
    entry = registry.space(tenant, space)
    entry.space.without_sources().save(output / "space.toml")
    live = sorted(entry.live.values(), key=lambda subscription: subscription.number)
    pq.write_table(
        pa.table(
            {
                "id": pa.array([subscription.name for subscription in live], pa.string()),
                "filter": pa.array([subscription.filter for subscription in live], pa.string()),
                "score": pa.array([subscription.score for subscription in live], pa.float64()),
            }
        ),
        output / "subscriptions.parquet",
    )
    return f"{output}: {count:,} events, {len(live):,} subscriptions and the space were written."


def _table(rows: list[dict[str, Any]], space: Space, unit: Unit) -> pa.Table:
    """Return events as a table of widely readable types; the id is the seq.

    Columns have the names of attributes, even of those that have a source.
    """
    columns: dict[str, Any] = {"id": pa.array(range(unit.first, unit.last + 1), pa.int64())}
    for attribute in space:
        values = [value_at(row, attribute.path or (attribute.name,)) for row in rows]
        columns[attribute.name] = pa.array(map(_text, values), pa.string())
    return pa.table(columns)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _encode(value).decode()


def repaired(folder: Path, *, force: bool) -> str:
    """Truncate a log after its last intact unit; move the rest and its snapshots aside."""
    _need_folder(folder)
    with _locked(folder):
        last, damage = 0, None
        try:
            for unit in checked_units(folder):
                last = unit.last
        except LogError as error:
            damage = error
        if damage is None:
            return f"{folder}: the log is intact; there is nothing to repair."
        if not force:
            raise LogError(
                f"{damage}\n  the log is intact up to seq {last}\n"
                "  hint: add --force to cut it there; the rest is moved aside"
            )
        aside = folder / f"damaged-{new_epoch()}"
        aside.mkdir(mode=0o700)
        kept = [first for first in segments(folder) if first <= max(last, 1)]
        for first in segments(folder):
            path = path_of(folder, first)
            for name in (path, wal_of(path)):
                if name.exists() and first in kept[-1:]:
                    shutil.copy2(name, aside / name.name)
                elif name.exists() and first not in kept:
                    name.rename(aside / name.name)
        if (folder / MARK).exists():
            (folder / MARK).rename(aside / MARK)
        for seq in snapshots(folder):
            path = folder / f"snapshot-{seq:020}"
            if seq > last:
                path.rename(aside / path.name)
        _cut(folder, kept, last, new_epoch() if not last else None)
        return f"{folder}: cut after seq {last}; the rest is in {aside}."


def _cut(folder: Path, kept: list[int], last: int, epoch: str | None) -> None:
    """Delete all units after a seq.

    The next start begins a new epoch, so that deleted units can't be confused with later ones; a
    log left empty needs a new epoch now.
    """
    for first in kept:
        path = path_of(folder, first)
        connection = sqlite3.connect(path)
        with connection:
            if epoch is not None:
                write_head(connection, epoch, first, START)
            connection.execute("DELETE FROM units WHERE last > ?", (last,))
        connection.close()
    if kept:
        mark = EndMark(folder)
        mark.begin(segment_end(path_of(folder, kept[-1]))[1])
        mark.close()


def _need_folder(folder: Path) -> None:
    if not folder.is_dir() or not segments(folder):
        raise UsageError(f"{folder}: no log found; expected: the folder given to serve --data")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = try_lock(folder / "lock")
    if lock is None:
        raise LogError(f"{folder}: a server is using this folder; stop it first")
    with lock:
        yield
