"""The server beside others: the same boxes and events, in the same run, each started here alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.frame import Report, console
from benchmarks.server_jetstream import jetstream
from benchmarks.server_load import Load, Measured, Theirs
from benchmarks.server_percolator import percolator
from benchmarks.server_postgres import postgres
from benchmarks.started import Unavailable
from rangecast.report.markdown import Table


class Peer(NamedTuple):
    """Alternative to the server."""

    name: str
    about: str
    measure: Callable[[Path, Load, bool], list[Theirs]]


JETSTREAM = Peer(
    "NATS JetStream",
    "stores events and matches nothing; `sync_interval: always`, so that it too answers when "
    "an event is on the disk",
    jetstream,
)
PERCOLATOR = Peer(
    "OpenSearch percolator",
    "stores queries, each on the disk when it answers, and no events: a document is matched "
    "and forgotten; an edit is seen after the next refresh",
    percolator,
)
POSTGRES = Peer(
    "PostgreSQL",
    "a table of events, and one of subscriptions with a GiST index on a cube; one statement "
    "inserts events and returns their matches; `synchronous_commit` and `fsync` are on",
    postgres,
)


def beside(
    report: Report,
    peers: Sequence[Peer],
    boxes: Load,
    ours: Callable[[], list[Measured]],
    *,
    quick: bool,
) -> None:
    """Measure peers, and write what came of it; one that can't run here is told with why."""
    rows: list[list[Any]] = []
    for peer in peers:
        rows += _compared(peer, boxes, ours, quick=quick)
    names = " and ".join(peer.name for peer in peers)
    report.text(f"## Beside {names}, {len(boxes.lo):,} subscriptions")
    report.text("\n\n".join(f"{peer.name}: {peer.about}." for peer in peers))
    report.table(Table("", ["", "theirs", "ours", "x theirs"], rows))


def _compared(
    peer: Peer, boxes: Load, ours: Callable[[], list[Measured]], *, quick: bool
) -> list[list[Any]]:
    console.print(f"{peer.name} ...", style="dim")
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = peer.measure(Path(folder), boxes, quick)
        except Unavailable as why:
            console.print(f"{peer.name}: {why}", markup=False)
            return [[f"{peer.name}: not run, {str(why).splitlines()[0]}", "", "", ""]]
    by_name = {one.name: one for one in ours()}
    rows: list[list[Any]] = []
    for one in found:
        mine = by_name[one.beside]
        row = [f"{peer.name}: {one.what}", mine.shown(one.value), mine.shown(mine.value)]
        rows.append([*row, mine.better(one.value)])
    return rows
