"""The drawings of docs/: worked examples, drawn from what the library answers.

python docs/make_pictures.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from rangecast import Integer, Space
from rangecast.cover import CoverSet
from rangecast.kernels.curves.hilbert import cells_at
from rangecast.merge import Summary, convert
from rangecast.notify.board import Board
from rangecast.notify.messages import Message
from rangecast.rank.papers.sopt import arranged
from rangecast.report.plots import COLOURS, figure

FOLDER = Path(__file__).parent / "images"

# ---- cover

EXAMPLE = {
    1: ((0, 60), (0, 60)),
    2: ((20, 100), (10, 100)),
    3: ((5, 50), (5, 55)),
    4: ((25, 45), (20, 50)),
    5: ((30, 40), (25, 35)),
}
"""Five subscriptions on two attributes, in order of arrival: the worked example of the docs."""


def example_graph(k: int | str) -> CoverSet:
    """Return the worked example in a covering graph."""
    space = Space([Integer("x", min=0, max=100), Integer("y", min=0, max=100)])
    graph = CoverSet(space, index="scan", k=k)
    for one, ((left, right), (low, high)) in EXAMPLE.items():
        graph.subscribe(one, f"x between {left} and {right} and y between {low} and {high}")
    return graph


def relation_graphs(folder: Path) -> None:
    """Draw the five subscriptions and their four graphs."""
    places = {1: (0.8, 3.0), 2: (2.1, 3.0), 3: (0.0, 2.0), 4: (1.6, 1.0), 5: (0.5, 0.0)}
    with figure(folder / "cover.png", columns=5, size=(2.5, 3.1)) as axes:
        plan, *four = axes[0]
        plan.set(title="five boxes", xlim=(-3, 103), ylim=(-3, 103), xlabel="x", ylabel="y")
        plan.grid(visible=False)
        for one, ((left, right), (low, high)) in EXAMPLE.items():
            colour = COLOURS[one - 1]
            edges = [left, right, right, left, left], [low, low, high, high, low]
            plan.plot(*edges, color=colour, lw=1.8)
            plan.text(right - 1.5, high - 1.5, str(one), color=colour, ha="right", va="top")
        kinds: dict[str, int | str] = {"G*": "all", "G₁": 1, "G₂": 2, "strict poset": "poset"}
        for one, (name, k) in zip(four, kinds.items(), strict=True):
            one.set(title=name)
            one.set(xlim=(-0.5, 2.6), ylim=(-0.5, 3.5))
            one.axis("off")
            for above, below in example_graph(k).edges():
                arrow = {"arrowstyle": "-|>", "shrinkA": 11, "shrinkB": 11, "color": "#5c6b73"}
                one.annotate("", places[int(below)], places[int(above)], arrowprops=arrow)
            for number, (x, y) in places.items():
                one.plot(x, y, "o", ms=19, color="white", mec=COLOURS[number - 1], mew=1.8)
                one.text(x, y, str(number), ha="center", va="center")


# ---- merge

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


def ranges_of_the_curve(folder: Path) -> None:
    """A box as ranges of the curve, and how many subscriptions hold each place."""
    table = Summary(SPACE, bits=3)
    with figure(folder / "merge-curve.png", columns=2, size=(5.8, 4.2)) as axes:
        _curve(axes[0, 0], table)
        _levels(axes[0, 1], table)


# ---- notify

END = 10.0
OBJECTS = {
    "id": ["a", "b", "c", "d", "i", "e", "f", "g", "h"],
    "position": [0.8, 1.9, 2.8, 3.7, 5.0, 5.9, 6.8, 7.9, 9.1],
    "value": [2.0, 7.0, 3.0, 5.0, 4.0, 6.0, 1.0, 3.5, 2.5],
}


def board(interests: Any = None, **options: Any) -> Board:
    """Return the board of all pictures, k = 3."""
    return Board(3, objects=OBJECTS, interests=interests, **options)


def raised(some: Board) -> list[Message]:
    """Return the messages of i's way from 8 to 4."""
    some.set_value("i", 8.0)
    return list(some.set_value("i", 4.0))


def draw_space(axes: Any, title: str) -> None:
    """Draw the half plane l <= r with the objects on its diagonal."""
    axes.plot([0, END], [0, END], color="#999999", linewidth=1)
    for name, x, y in zip(*OBJECTS.values(), strict=True):
        axes.plot([x, x], [x, END], color="#dddddd", linewidth=0.8, zorder=0)
        axes.plot([0, x], [x, x], color="#dddddd", linewidth=0.8, zorder=0)
        axes.plot(x, x, "o", color="black", markersize=4)
        axes.annotate(f"{name} ({y:g})", (x, x), (5, -10), textcoords="offset points", fontsize=8)
    axes.set(title=title, xlabel="l", ylabel="r", xlim=(0, END), ylim=(0, END), aspect="equal")
    axes.grid(False)


def draw_message(axes: Any, message: Message, colour: str, label: str | None = None) -> None:
    """Draw the rectangle that a message reaches."""
    left, right = max(message.left_outer, 0.0), message.left_inner
    low, high = message.right_inner, min(message.right_outer, END)
    axes.fill([left, right, right, left], [low, low, high, high], color=colour, alpha=0.35, lw=0)
    axes.plot([left, right, right, left, left], [low, low, high, high, low], color=colour, lw=1.2)
    if label:
        axes.text((left + right) / 2, (low + high) / 2, label, ha="center", va="center", fontsize=9)


def staircases(folder: Path) -> None:
    """A value that got better, and one that got worse."""
    with figure(folder / "notify-staircase.png", columns=2, size=(5.2, 5.2)) as axes:
        better, worse = axes[0]
        draw_space(better, "i gets better, 8 → 4: its staircase")
        for message in raised(board(algorithm="dense")):
            draw_message(better, message, COLOURS[0], "i")
        draw_space(worse, "i gets worse, 4 → 8: who replaces it")
        for message in board(algorithm="dense").set_value("i", 8.0):
            own = message.object == "i"
            colour = COLOURS[0] if own else COLOURS[1 + "abcdefgh".index(message.object) % 6]
            if not own:
                draw_message(worse, message, colour, message.object)
            else:
                draw_message(worse, message, COLOURS[0])


def few_interests(folder: Path) -> None:
    """The same update for few interests, and approximately."""
    rng = np.random.default_rng(7)
    ends = np.sort(rng.random((24, 2)) * END, axis=1)
    interests = {"id": list(range(24)), "position_lo": ends[:, 0], "position_hi": ends[:, 1]}
    with figure(folder / "notify-sparse.png", columns=2, size=(5.2, 5.2)) as axes:
        for one, options, title in (
            (axes[0, 0], {"algorithm": "sparse"}, "Paint-Sparse, knowing the interests"),
            (axes[0, 1], {"algorithm": "dense", "epsilon": 1.0}, "Paint-Dense(1), approximate"),
        ):
            messages = raised(board(interests, **options))
            draw_space(one, title)
            one.plot(ends[:, 0], ends[:, 1], ".", color="#777777", markersize=5)
            exact = raised(board(interests, algorithm="dense"))
            hit = [any(m.reaches(lo, hi) for m in exact) for lo, hi in ends.tolist()]
            one.plot(ends[hit, 0], ends[hit, 1], "o", color=COLOURS[3], markersize=5)
            for message in messages:
                draw_message(one, message, COLOURS[2])


# ---- rank

INTERVALS = np.array(
    [
        *([30, 55], [75, 90], [45, 55], [65, 100], [10, 30]),
        *([0, 30], [75, 100], [75, 90], [10, 45], [10, 90]),
    ],
    dtype=float,
)
"""The paper's running example, as far as its text fixes it: intervals 1 to 10, 1 the best."""


def arrangement(folder: Path) -> None:
    """Draw the example twice: by score, and as the SOPT-R-tree arranges it; pages of 3."""
    orders = {
        "By score (scored R-tree)": np.arange(10),
        "Arranged (SOPT-R-tree)": arranged(INTERVALS[:, 0], INTERVALS[:, 1]),
    }
    with figure(folder / "rank-arrangement.png", columns=2, size=(4.6, 3.6)) as axes:
        for (title, order), one in zip(orders.items(), axes[0], strict=True):
            for first in range(0, 10, 3):
                page = order[first : first + 3]
                lo, hi = INTERVALS[page, 0].min(), INTERVALS[page, 1].max()
                one.fill_between([lo, hi], first - 0.45, first + len(page) - 0.55, alpha=0.18)
            for place, number in enumerate(order):
                lo, hi = INTERVALS[number]
                one.plot([lo, hi], [place, place], color="#333333", lw=3, solid_capstyle="butt")
                one.text(hi + 1.5, place, str(number + 1), va="center", fontsize=9)
            one.set(title=title, xlabel="value", xlim=(-2, 108), yticks=[])
            one.invert_yaxis()


def draw_all(folder: Path) -> None:
    """Draw every picture into a folder."""
    for picture in (relation_graphs, ranges_of_the_curve, staircases, few_interests, arrangement):
        picture(folder)


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
