"""The picture of docs/MERGE.md: a box as ranges of the curve, and how many hold each place.

python -m experiments.merge_pictures
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rangecast.kernels.hilbert import cells_at
from rangecast.merge import Summary, convert
from rangecast.model.attributes import Integer
from rangecast.model.space import Space
from rangecast.report.plots import COLOURS, figure

PATH = Path(__file__).parents[1] / "docs" / "images" / "merge-curve.png"
SPACE = Space([Integer("x", min=0, max=7), Integer("y", min=0, max=7)])
BOX = "x between 4 and 6 and y between 2 and 5"
OTHERS = ("x between 4 and 5 and y between 2 and 3", "x between 5 and 7 and y between 4 and 6")


def _curve(axis: Any, table: Summary) -> None:
    cells = np.empty((64, 2), np.uint64)
    cells_at(np.arange(64, dtype=np.uint64), 3, cells)
    ranges = convert(BOX, SPACE, table.cells).ranges
    axis.plot(cells[:, 0], cells[:, 1], color="#b9c2c6", linewidth=1.5, zorder=1)
    for start, end, colour in zip(*ranges, COLOURS, strict=False):
        some = cells[int(start) : int(end) + 1]
        axis.plot(some[:, 0], some[:, 1], "s-", color=colour, markersize=17, zorder=2,
                  label=f"[{start}, {end}]")  # fmt: skip
    for place, (x, y) in enumerate(cells.tolist()):
        held = ((ranges.starts <= place) & (place <= ranges.ends)).any()
        colour = "white" if held else "black"
        axis.text(x, y, str(place), ha="center", va="center", fontsize=7, zorder=3, color=colour)
    axis.set(title="A box is a few ranges of the curve", xlabel="x", ylabel="y", aspect="equal")
    axis.grid(visible=False)
    legend = axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    for handle in legend.legend_handles:
        handle.set_markersize(6)


def _levels(axis: Any, table: Summary) -> None:
    counts = np.zeros(65)
    for row, text in enumerate((BOX, *OTHERS)):
        ranges = convert(text, SPACE, table.cells).ranges
        table.subscribe(row, text)
        for start, end in zip(*(part.astype(int) for part in ranges), strict=True):
            counts[start : end + 1] += 1
            height = -0.35 - 0.4 * row
            axis.barh(height, end - start + 1, 0.25, start, color=COLOURS[row], zorder=3)
    axis.step(np.arange(65), counts, where="post", color="black", label="how many hold it")
    for start, end in zip(*(part.astype(int) for part in table.ranges()), strict=True):
        axis.axvspan(start, end + 1, color="#f2b134", alpha=0.3, linewidth=0)
    axis.set(title="Three subscriptions, their levels and their union", xlabel="place on the curve")
    axis.set(xlim=(28, 60), ylim=(-1.5, 2.5), yticks=[0, 1, 2], ylabel="level")


def main() -> None:
    """Draw it."""
    table = Summary(SPACE, bits=3)
    with figure(PATH, columns=2, size=(5.8, 4.2)) as axes:
        _curve(axes[0, 0], table)
        _levels(axes[0, 1], table)
    print(f"Saved {PATH}")


if __name__ == "__main__":
    main()
