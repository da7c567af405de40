"""`rangecast route zones`: the cost of messages in a network of brokers with one zone each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from rangecast.cli.shared.option_groups import RowOptions
from rangecast.cli.shared.options import (
    BoardInterests,
    BoardObjects,
    BoardSpace,
    ListLength,
    Output,
    Plot,
    Seed,
    UpperBoundAttribute,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rangecast.kernels.arrays import F64
    from rangecast.notify.board import Board
    from rangecast.notify.tables import Change
    from rangecast.overlay.zones.geometry import Box
    from rangecast.overlay.zones.traffic import Traffic, ZoneTraffic

_CHUNK = 2_000


Zones = Literal["random", "load"]
"""Rule for choosing the zone of a broker that joins."""


def zones(
    objects: BoardObjects,
    updates: Annotated[
        Path,
        typer.Argument(help="Updates in order: id, value; without a value the object is removed."),
    ],
    interests: BoardInterests,
    options: RowOptions,
    k: ListLength = 10,
    space: BoardSpace = None,
    upper_bound_attribute: UpperBoundAttribute = None,
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
    message per affected interest, over one overlay link, or by zones) and CN-Relax (to all
    interests that contain the object).

    With --space, an interest is a box: a point with two coordinates per attribute. A filter of
    several boxes counts as an interest for each. Paint-Sparse(1) is then only compared with
    --upper-bound-attribute.

    Writes the average cost of an update: approach, messages, server_bytes, overlay and ip (bytes
    x links, without the last hop to subscribers), received (messages about changed objects) and
    redundancy (needless deliveries, as a share).

    \b
    Examples:
      rangecast generate topk --objects 2000 --interests 50000 --updates 1000 -o data
      rangecast route zones data/objects.parquet data/updates.parquet data/interests.parquet \\
        --brokers 100 --plot network.png
      rangecast route zones flats.csv rents.csv wishes.csv --space space.toml --brokers 50
    """
    import numpy as np
    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.tasks.board_files import BoardFiles
    from rangecast.notify.board import Board
    from rangecast.overlay.networks.internet import Internet
    from rangecast.overlay.zones.server import interest_axes
    from rangecast.overlay.zones.traffic import ZoneTraffic, holding
    from rangecast.overlay.zones.zonemap import ZoneMap

    with Run.started(
        output, reads=[objects, updates, interests, space], pictures=[plot], options=options
    ) as run:
        files = BoardFiles(run, (objects, updates, interests), space, upper_bound_attribute)
        things, wanted, most = files.objects, files.interests, files.max_k(k)
        steps = files.read_updates(set(things.ids.to_pylist()).__contains__)
        changes = [change for _, step_changes in steps for change in step_changes]
        _check(updates, changes)

        def board(**options: Any) -> Board:
            return Board(
                most,
                space=files.space,
                upper_bound_attribute=upper_bound_attribute,
                objects=things,
                interests=wanted,
                **options,
            )

        with run.task("building the network"):
            internet = Internet(
                underlay_nodes, degree_exponent=degree_exponent, leaf_share=leaf_share, seed=seed
            )
            sparse = board()
            axes = interest_axes(sparse)
            points = np.ascontiguousarray(wanted.regions.points[:, axes])
            frame = _frame(wanted.regions.points, things.at, axes)
            by_load = zoning == "load"
            cut = ZoneMap.grown(points, brokers, frame, by_load=by_load, seed=seed)
            net = ZoneTraffic(cut, internet, points, seed)
        with run.task("sending") as advance:
            comparison = _Comparison(net, changes, axes)
            comparison.paint("Paint-Dense", board(algorithm="dense"), advance)
            comparison.paint("Paint-Sparse", sparse, advance, with_unicast=True)
            if files.space is None or upper_bound_attribute is not None:
                comparison.paint("Paint-Sparse(1)", board(epsilon=1.0), advance)
            rows_of = {name: row for row, name in enumerate(things.ids.to_pylist())}
            positions = things.at[[rows_of[change.id] for change in changes]]
            comparison.relax(holding(positions))
        schema = pa.schema(
            [("approach", pa.string())] + [(name, pa.float64()) for name in _Cost._fields]
        )
        costs = comparison.costs()
        with run.writer(schema) as writer:
            columns = [list(costs), *zip(*costs.values(), strict=True)]
            writer.write(pa.record_batch([pa.array(column) for column in columns], schema=schema))
        if plot is not None:
            _draw(plot, net, points, comparison, costs, files.tables.names)
        if output != "-":
            run.say(_table_text(costs))
        facts = {
            "updates": len(changes),
            "interests": len(points),
            "k": most,
            "brokers": brokers,
            "zones": zoning,
            "nodes": internet.nodes,
            "links": internet.links,
            "approaches": {name: cost._asdict() for name, cost in costs.items()},
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

    def __init__(self, net: ZoneTraffic, changes: list[Change], axes: list[int]):
        self._net, self._changes, self.axes = net, changes, axes
        self._found: dict[str, Traffic] = {}
        self.farthest: tuple[int, F64] | None = None
        """The Paint-Sparse message that reaches the most zones: their number, and its bounds."""

    def paint(self, name: str, board: Board, advance: Any, *, with_unicast: bool = False) -> None:
        """Apply the updates to a board; sum the traffic of its messages, optionally of unicast."""
        import numpy as np

        from rangecast.overlay.zones.traffic import Traffic

        painted = over_zones = over_links = Traffic()
        for first in range(0, len(self._changes), _CHUNK):
            changes = self._changes[first : first + _CHUNK]
            before = board.seq
            messages = board.update_many(changes)
            bounds = self._selected(messages.bounds)
            traffic, ways = self._net.painted(bounds)
            names = np.array([change.id for change in changes], object)
            own = bounds[messages.objects == names[messages.seq - before]]
            painted += traffic._replace(received=self._net.received(own))
            if with_unicast:
                by_zones, by_link = self._net.unicast(own)
                over_zones, over_links = over_zones + by_zones, over_links + by_link
                self._note(bounds, ways.zones)
            advance(len(changes))
        self._found[name] = painted
        if with_unicast:
            self._found |= {"Unicast": over_links, "Unicast by zones": over_zones}

    def _selected(self, bounds: F64) -> F64:
        """Return bounds on the axes of the zones."""
        import numpy as np

        return np.concatenate([side[:, self.axes] for side in np.hsplit(bounds, 2)], axis=1)

    def _note(self, bounds: F64, zones: Any) -> None:
        if len(bounds) and (self.farthest is None or zones.max() > self.farthest[0]):
            self.farthest = int(zones.max()), bounds[zones.argmax()]

    def relax(self, bounds: F64) -> None:
        """Send all updates to all interests that contain the object, as bounds say."""
        self._found["CN-Relax"] = self._net.relaxed(self._selected(bounds))[0]

    def costs(self) -> dict[str, _Cost]:
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


def _frame(points: F64, positions: F64, axes: list[int]) -> Box:
    """Return the bounds of interests and objects, by attribute, on the axes of the zones."""
    import numpy as np

    from rangecast.model.attributes.numbers import MAX
    from rangecast.overlay.zones.geometry import Box

    sides = []
    for low, high, places in zip(*np.split(points.T, 2), positions.T, strict=True):
        ends = np.concatenate([low, high, places])
        ends = ends[np.abs(ends) < MAX]
        sides.append((float(ends.min()), float(ends.max())) if len(ends) else (0.0, 1.0))
    least, most = zip(*sides, strict=True)
    return Box(*(tuple((side * 2)[axis] for axis in axes) for side in (least, most)))


def _draw(
    path: Path,
    net: ZoneTraffic,
    points: F64,
    comparison: _Comparison,
    costs: dict[str, _Cost],
    names: Sequence[str],
) -> None:
    """Draw zones by the two bounds of one attribute, the first one that has both."""
    import numpy as np

    from rangecast.overlay.zones.geometry import Box
    from rangecast.report.network import MessagePath, draw

    axes, d = comparison.axes, len(names)
    attribute = next(axis for axis in range(d) if axis in axes)
    shown = [axes.index(attribute), axes.index(d + attribute)]
    way = None
    if comparison.farthest is not None:
        lo, hi = np.split(comparison.farthest[1], 2)
        box = Box(tuple(lo.tolist()), tuple(hi.tolist()))
        way = MessagePath(lo[shown], hi[shown], *net.zones.path(net.zones.server, box))
    lows, highs = (
        np.array([box[side] for box in [*net.zones.boxes, net.zones.frame]])[:, shown]
        for side in (0, 1)
    )
    suffix = "" if d == 1 else f" of {names[attribute]}"
    draw(
        path,
        (lows[:-1], highs[:-1]),
        (lows[-1], highs[-1]),
        net.zones.server,
        points[:, shown],
        way,
        {name: (cost.overlay, cost.ip) for name, cost in costs.items()},
        (f"l{suffix}", f"r{suffix}"),
    )


def _table_text(rows: dict[str, _Cost]) -> str:
    """Return the table as text that fits a terminal."""
    from rangecast.report.markdown import cell

    lines = [["approach", *(name.replace("_", " ") for name in _Cost._fields)]]
    lines += [[name, *map(cell, cost)] for name, cost in rows.items()]
    first, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
    return "\n".join(
        "  ".join([name.ljust(first), *map(str.rjust, cells, widths)]) for name, *cells in lines
    )
