"""Plot of a partition: its polygons and its faults."""

from __future__ import annotations

from pathlib import Path

from rangecast.model.attributes.places import Place
from rangecast.model.space import Space
from rangecast.report.partition import KINDS, PartitionReport
from rangecast.report.plots import COLOURS, plot

_MARKS = {"gap": "s", "overlap": "X", "T-junction": "^", "near corners": "o"}
_HUES = {"gap": COLOURS[7], "overlap": COLOURS[3], "T-junction": COLOURS[1]}
_HUES |= {"near corners": COLOURS[4]}


def draw_partition(report: PartitionReport, path: Path, space: Space) -> None:
    """Draw the polygons and filled gaps, with a mark at every fault."""
    place = next(attribute for attribute in space if isinstance(attribute, Place))
    x, y = (axis.name for axis in place.coordinates)
    from matplotlib.collections import LineCollection, PolyCollection

    title = f"{report.polygons:,} polygons: {report.summary() or 'a partition'}"
    with plot(path, title=title, x=x, y=y, size=(7.0, 6.0)) as axes:
        axes.grid(visible=False)
        axes.set_aspect("equal", adjustable="datalim")
        fill = PolyCollection(report.rings, facecolors=COLOURS[0], alpha=0.12, edgecolors="none")
        axes.add_collection(fill)
        width = 0.8 if report.edges < 20_000 else 0.3
        axes.add_collection(LineCollection(report.rings, colors=COLOURS[0], linewidths=width))
        axes.add_collection(
            PolyCollection(report.gaps, facecolors=_HUES["gap"], edgecolors=_HUES["gap"])
        )
        for kind in KINDS:
            faults = [fault for fault in report.faults if fault.kind == kind]
            if faults:
                axes.scatter(
                    [fault.x for fault in faults],
                    [fault.y for fault in faults],
                    marker=_MARKS[kind],
                    s=42,
                    facecolors="none" if kind in ("gap", "near corners") else _HUES[kind],
                    edgecolors=_HUES[kind],
                    linewidths=1.4,
                    zorder=3,
                    label=kind if len(faults) == 1 or kind[-1] == "s" else f"{kind}s",
                )
        axes.autoscale_view()
