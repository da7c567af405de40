"""`rangecast route zones`: the cost of messages in a network of brokers with one zone each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from rangecast.cli.shared.option_groups import RowOptions
from rangecast.cli.shared.options import Output, Plot, Seed

if TYPE_CHECKING:
    from rangecast.notify.messages import Messages
    from rangecast.notify.tables import Change
    from rangecast.overlay.zones.geometry import Box
    from rangecast.overlay.zones.traffic import Traffic, ZoneTraffic

_CHUNK = 2_000


Zones = Literal["random", "load"]
"""Rule for choosing the zone of a broker that joins."""


def zones(
    objects: Annotated[Path, typer.Argument(help="Objects: id, position, value; - is stdin.")],
    updates: Annotated[
        Path,
        typer.Argument(help="Updates in order: id, value; without a value the object is removed."),
    ],
    interests: Annotated[
        Path,
        typer.Argument(
            help="Interests: id, position_lo, position_hi and optionally k; null is unbounded."
        ),
    ],
    options: RowOptions,
    k: Annotated[
        int,
        typer.Option("--top", "-k", min=1, max=1 << 16, help="Number of objects per list."),
    ] = 10,
    brokers: Annotated[int, typer.Option("--brokers", min=1, help="Number of brokers.")] = 100,
    zoning: Annotated[
        Zones,
        typer.Option(
            "--zones",
            help="random: each broker halves the zone of a random point (CAN); load: it takes half "
            "the interests of the most loaded broker (Meghdoot).",
        ),
    ] = "random",
    underlay_nodes: Annotated[
        int, typer.Option("--underlay-nodes", min=3, help="Nodes of the generated internet.")
    ] = 20_000,
    degree_exponent: Annotated[
        float,
        typer.Option("--degree-exponent", help="Exponent of the power law of node degrees."),
    ] = 2.2,
    leaf_share: Annotated[
        float, typer.Option("--leaf-share", help="Share of the nodes with degree one.")
    ] = 0.3,
    seed: Seed = 0,
    plot: Plot = None,
    output: Output = "-",
) -> None:
    """Compare approaches to keeping top-k lists up to date over a network of brokers.

    The space of interests is split into zones with one broker each; brokers are random nodes of a
    generated internet. Updates are sent by Paint-Dense, Paint-Sparse, Paint-Sparse(1), Unicast (a
    message per
    affected interest, over one overlay link, or by zones) and CN-Relax (to all interests that hold
    the object).

    Writes the average cost of an update: approach, messages, server_bytes, overlay and ip (bytes
    x links, without the last hop to subscribers), received (messages about changed objects) and
    redundancy (received beyond what is needed, as a share).

    \b
    Examples:
      rangecast generate topk --objects 2000 --interests 50000 --updates 1000 -o data
      rangecast route zones data/objects.parquet data/updates.parquet data/interests.parquet \\
        --brokers 100 --plot network.png
    """
    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.notify.board import Board
    from rangecast.notify.choose import board_tables
    from rangecast.notify.tables import common_id_type
    from rangecast.overlay.networks.internet import Internet
    from rangecast.overlay.zones.traffic import ZoneTraffic
    from rangecast.overlay.zones.zonemap import ZoneMap

    with Run.started(
        output, reads=[objects, updates, interests], pictures=[plot], options=options
    ) as run:
        tables = board_tables()
        initial, changed, watched = (
            tables.file_rows(run.file(path)) for path in (objects, updates, interests)
        )
        kind = common_id_type(initial, changed)
        things = tables.read_objects(
            initial, run.rejected_rows, kind=kind, ignore_unknown=options.ignore_unknown
        )
        with run.task("reading interests") as advance:
            wanted = tables.read_interests(
                watched, run.rejected_rows, advance, ignore_unknown=options.ignore_unknown
            )
        most = max([k, *wanted.wanted.values()])
        ids = set(things.ids.to_pylist())
        steps = tables.read_updates(
            changed,
            kind,
            ids.__contains__,
            run.rejected_rows,
            ignore_unknown=options.ignore_unknown,
        )
        changes = [change for _, some in steps for change in some]
        _check(updates, changes)

        def board(**options: Any) -> Board:
            return Board(most, objects=things, interests=wanted, **options)

        with run.task("building the network"):
            internet = Internet(
                underlay_nodes, degree_exponent=degree_exponent, leaf_share=leaf_share, seed=seed
            )
            sparse = board()
            interest_index: Any = sparse.engine
            _, lo, hi = interest_index.tree.columns()
            points, frame = _place(lo, hi, things.at[:, 0])
            by_load = zoning == "load"
            cut = ZoneMap.grown(points, brokers, frame, by_load=by_load, seed=seed)
            net = ZoneTraffic(cut, internet, interest_index.tree, seed)
        with run.task("sending") as advance:
            places = dict(zip(things.ids.to_pylist(), things.at[:, 0].tolist(), strict=True))
            comparison = _Comparison(net, changes)
            comparison.paint("Paint-Dense", board(algorithm="dense"), advance)
            comparison.paint("Paint-Sparse", sparse, advance, with_letters=True)
            comparison.paint("Paint-Sparse(1)", board(epsilon=1.0), advance)
            comparison.relax([places[change.id] for change in changes])
        schema = pa.schema(
            [("approach", pa.string())] + [(name, pa.float64()) for name in _Cost._fields]
        )
        rows = comparison.rows()
        with run.writer(schema) as writer:
            columns = [list(rows), *zip(*rows.values(), strict=True)]
            writer.write(pa.record_batch([pa.array(column) for column in columns], schema=schema))
        if plot is not None:
            _draw(plot, net, points, comparison, rows)
        if output != "-":
            run.say(_lines(rows))
        facts = {
            "updates": len(changes),
            "interests": len(points),
            "k": most,
            "brokers": brokers,
            "zones": zones,
            "nodes": internet.nodes,
            "links": internet.links,
            "approaches": {name: cost._asdict() for name, cost in rows.items()},
            "plot": plot,
        }
        text = (
            f"{counted(len(changes), 'update')} for {counted(len(points), 'interest')} at "
            f"{counted(brokers, 'broker')} of an internet with {counted(underlay_nodes, 'node')}"
        )
        run.done(text, len(changes), facts)


class _Cost(NamedTuple):
    """Average cost of an update."""

    messages: float
    server_bytes: float
    overlay: float
    ip: float
    received: float
    redundancy: float


class _Comparison:
    """The same updates by several approaches."""

    def __init__(self, net: ZoneTraffic, changes: list[Change]):
        self._net, self._changes = net, changes
        self._found: dict[str, Traffic] = {}
        self.farthest: tuple[int, Any] | None = None
        """The Paint-Sparse message that reaches the most zones: their number, and its tile as a
        box.
        """

    def paint(self, name: str, board: Any, advance: Any, *, with_letters: bool = False) -> None:
        """Send all updates as a board paints them, optionally also by unicast to affected
        interests.
        """
        import numpy as np

        from rangecast.overlay.zones.traffic import Traffic

        painted = through = direct = Traffic()
        for first in range(0, len(self._changes), _CHUNK):
            some = self._changes[first : first + _CHUNK]
            before = board.seq
            messages = board.update_many(some)
            traffic, ways = self._net.painted(messages)
            names = np.array([change.id for change in some], object)
            tiles = messages.tile[messages.objects == names[messages.seq - before]]
            received = int(self._net.interests.reached(tiles).sum())
            painted += traffic._replace(received=received)
            if with_letters:
                by_zones, by_link = self._net.unicast(tiles)
                through, direct = through + by_zones, direct + by_link
                self._note(messages, ways.zones)
            advance(len(some))
        self._found[name] = painted
        if with_letters:
            self._found |= {"Unicast": direct, "Unicast by zones": through}

    def _note(self, messages: Messages, zones: Any) -> None:
        import numpy as np

        if len(messages) and (self.farthest is None or zones.max() > self.farthest[0]):
            zone = int(zones.argmax())
            lo, hi = np.hsplit(messages.bounds, 2)
            self.farthest = int(zones[zone]), (lo[zone].tolist(), hi[zone].tolist())

    def relax(self, xs: list[float]) -> None:
        """Send all updates to all interests that contain the object."""
        import numpy as np

        self._found["CN-Relax"] = self._net.relaxed(np.array(xs))[0]

    def rows(self) -> dict[str, _Cost]:
        """Return the average cost of an update, by approach."""
        n = max(len(self._changes), 1)
        exact = self._found["Paint-Sparse"].received
        return {
            name: _Cost(
                painter.messages / n,
                painter.server_bytes / n,
                painter.overlay / n,
                painter.ip / n,
                painter.received / n,
                painter.received / exact - 1 if exact else 0.0,
            )
            for name, painter in self._found.items()
        }


def _check(path: Path, changes: list[Change]) -> None:
    from rangecast.errors import UsageError

    moved = next((change for change in changes if change.position is not None), None)
    if moved is not None:
        raise UsageError(
            f"{path}: an update of {moved.id!r} has a position, but a network is only measured "
            "with updates of values\n"
            "  hint: leave out positions; put new objects into the objects file"
        )


def _place(lo: Any, hi: Any, xs: Any) -> tuple[Any, Box]:
    """Return interests as points, and the bounds of interests and objects."""
    import numpy as np

    from rangecast.model.attributes.numbers import MAX
    from rangecast.overlay.zones.geometry import Box

    ends = np.concatenate([lo, hi, xs])
    ends = ends[np.abs(ends) < MAX]
    least, most = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 1.0)
    return np.stack([lo, hi], axis=1), Box((least,) * 2, (most,) * 2)


def _draw(
    path: Path, net: ZoneTraffic, points: Any, comparison: _Comparison, rows: dict[str, _Cost]
) -> None:
    import numpy as np

    from rangecast.overlay.zones.geometry import Box
    from rangecast.report.network import MessagePath, draw

    way = None
    if comparison.farthest is not None:
        lo, hi = comparison.farthest[1]
        box = Box(tuple(lo), tuple(hi))
        way = MessagePath(lo, hi, *net.zones.path(net.zones.server, box))
    corners = [np.array([box[side] for box in net.zones.boxes]) for side in (0, 1)]
    costs = {name: (cost.overlay, cost.ip) for name, cost in rows.items()}
    draw(path, (corners[0], corners[1]), net.zones.frame, net.zones.server, points, way, costs)


def _lines(rows: dict[str, _Cost]) -> str:
    """Return the table as lines that fit a terminal."""
    from rangecast.report.markdown import cell

    lines = [["approach", *(name.replace("_", " ") for name in _Cost._fields)]]
    lines += [[name, *map(cell, cost)] for name, cost in rows.items()]
    first, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
    return "\n".join(
        "  ".join([name.ljust(first), *map(str.rjust, cells, widths)]) for name, *cells in lines
    )
