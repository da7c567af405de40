"""The pictures of docs/NOTIFY.md, drawn from the messages that a board sends.

python -m experiments.notify_pictures
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rangecast.notify.board import Board
from rangecast.notify.messages import Message
from rangecast.report.plots import COLOURS, figure

FOLDER = Path(__file__).parents[1] / "docs" / "images"
END = 10.0
OBJECTS = {
    "id": ["a", "b", "c", "d", "i", "e", "f", "g", "h"],
    "x": [0.8, 1.9, 2.8, 3.7, 5.0, 5.9, 6.8, 7.9, 9.1],
    "y": [2.0, 7.0, 3.0, 5.0, 4.0, 6.0, 1.0, 3.5, 2.5],
}


def board(interests: Any = None, **options: Any) -> Board:
    """Return the board of all pictures, k = 3."""
    return Board(3, OBJECTS, interests, **options)


def raised(some: Board) -> list[Message]:
    """Return the messages of i's way from 8 to 4."""
    some.update("i", 8.0)
    return list(some.update("i", 4.0))


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


def draw(axes: Any, message: Message, colour: str, label: str | None = None) -> None:
    """Draw the rectangle that a message reaches."""
    left, right = max(message.left_outer, 0.0), message.left_inner
    low, high = message.right_inner, min(message.right_outer, END)
    axes.fill([left, right, right, left], [low, low, high, high], color=colour, alpha=0.35, lw=0)
    axes.plot([left, right, right, left, left], [low, low, high, high, low], color=colour, lw=1.2)
    if label:
        axes.text((left + right) / 2, (low + high) / 2, label, ha="center", va="center", fontsize=9)


def staircases() -> None:
    """A value that got better, and one that got worse."""
    with figure(FOLDER / "notify-staircase.png", columns=2, size=(5.2, 5.2)) as axes:
        better, worse = axes[0]
        draw_space(better, "i gets better, 8 → 4: its staircase")
        for message in raised(board(algorithm="dense")):
            draw(better, message, COLOURS[0], "i")
        draw_space(worse, "i gets worse, 4 → 8: who replaces it")
        for message in board(algorithm="dense").update("i", 8.0):
            own = message.object == "i"
            colour = COLOURS[0] if own else COLOURS[1 + "abcdefgh".index(message.object) % 6]
            if not own:
                draw(worse, message, colour, message.object)
            else:
                draw(worse, message, COLOURS[0])


def few_interests() -> None:
    """The same update for few interests, and approximately."""
    rng = np.random.default_rng(7)
    ends = np.sort(rng.random((24, 2)) * END, axis=1)
    interests = {"id": list(range(24)), "x_lo": ends[:, 0], "x_hi": ends[:, 1]}
    with figure(FOLDER / "notify-sparse.png", columns=2, size=(5.2, 5.2)) as axes:
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
                draw(one, message, COLOURS[2])


if __name__ == "__main__":
    staircases()
    few_interests()
