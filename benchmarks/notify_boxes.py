"""Range top-k messages over two attributes: a board beside lists that are kept or worked out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import expected
from experiments.timing import race
from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.notify import Board
from rangecast.report.markdown import Table

K = 5
SPACE = Space([Number("a"), Number("b")])
BOUND, MORE, RATIO = 16, 20, 10.0
"""Expected: bytes per bound of an interest, and beside them; times the lists of all around."""
Changes = list[tuple[int, float]]

ABOUT = f"""
**Two attributes.** Objects, values and the ends of interests are uniform; k = {K}. *Lists worked
out* is the plain alternative over the same trees: the interests that hold the object are found, and
the list of each is worked out. *NumPy* knows all lists: it finds the interests that hold the object
by comparing all bounds, puts a better object into their lists, and works out those that a worse one
was in. All end with the same lists, which is checked.

Expected: at least {RATIO:.0f} times the lists worked out, or the board takes that way itself; at
most {BOUND} bytes per bound and {MORE} beside them per interest.
"""


class NumPyLists:
    """All lists, kept up to date with arrays alone."""

    def __init__(self, at: F64, ys: F64, ends: F64, first: I64):
        self.at, self.ys, self.ends = at, ys.copy(), ends
        self.lists = first.copy()

    def changed(self, changes: Changes) -> NumPyLists:
        """Give objects other values."""
        for one, y in changes:
            self._change(one, y)
        return self

    def _change(self, one: int, y: float) -> None:
        here, old = self.at[one], self.ys[one]
        holds = ((self.ends[:, 0] <= here) & (here <= self.ends[:, 1])).all(axis=1)
        rows = np.flatnonzero(holds)
        has = (self.lists[rows] == one).any(axis=1)
        self.ys[one] = y
        if y < old:
            worst = np.append(self.ys, np.inf)[self.lists[rows, -1]]
            rows = rows[has | (y < worst)]
            merged = np.where(self.lists[rows] == one, -1, self.lists[rows])
            merged = np.concatenate([merged, np.full((len(rows), 1), one)], axis=1)
            order = np.argsort(np.append(self.ys, np.inf)[merged], axis=1, kind="stable")
            self.lists[rows] = np.take_along_axis(merged, order, axis=1)[:, :K]
            return
        for row in rows[has]:
            low, high = self.ends[row]
            inside = np.flatnonzero(((low <= self.at) & (self.at <= high)).all(axis=1))
            few = inside[np.argsort(self.ys[inside])[:K]]
            self.lists[row] = -1
            self.lists[row, : len(few)] = few


def two_attributes(quick: bool, runs: int) -> Table:
    """Time single updates in each way."""
    n, m, updates = (300, 1_000, 20) if quick else (10_000, 100_000, 100)
    random = np.random.default_rng(1)
    at, ys = random.random((n, 2)), random.random(n)
    ends = np.sort(random.random((m, 2, 2)), axis=1)
    which = random.integers(0, n, updates).tolist()
    changes = list(zip(which, random.random(updates).tolist(), strict=True))
    objects = {"id": np.arange(n), "a": at[:, 0], "b": at[:, 1], "value": ys}
    bounds = {
        f"{name}_{end}": ends[:, place, axis]
        for axis, name in enumerate(SPACE.names)
        for place, end in enumerate(("lo", "hi"))
    }

    def board(few: int | None) -> Board:
        wishes = {"id": np.arange(m), **bounds}
        made: Any = Board(K, space=SPACE, objects=objects, interests=wishes)
        made.engine._painter.fixed = few
        return made  # type: ignore[no-any-return]

    warm = board(None)
    first = warm.lists().arrivals
    warm.update_many(changes[:2])

    def painted(few: int | None) -> Callable[[], tuple[Any, int | None]]:
        made = board(few)
        return lambda: (made, len(made.update_many(changes)))

    def kept() -> Callable[[], tuple[Any, int | None]]:
        made = NumPyLists(at, ys, ends, first)
        return lambda: (made.changed(changes), None)

    ways: dict[str, Callable[[], Callable[[], Any]]] = {
        "Board": partial(painted, None),
        "lists worked out": partial(painted, 10**9),
        "NumPy, lists kept": kept,
    }
    raced = race(ways, rounds=runs, same=_same)
    slowest = raced["lists worked out"].least
    rows = []
    for name, one in raced.items():
        made, sent = one.answer
        is_board = isinstance(made, Board)
        size = (made.engine.tree.memory if is_board else ends.nbytes + first.nbytes) / m
        ratio, limit = slowest / one.least, BOUND * 4 + MORE
        rows.append(
            [
                *(name, updates / one.least, ratio),
                expected(ratio, least=RATIO if name == "Board" else None),
                "" if sent is None else sent / updates,
                *(size, expected(size, most=limit if name == "Board" else None)),
            ]
        )
    heads = ["", "updates/s", "x lists worked out", "expected", "messages per update"]
    heads += ["bytes per interest", "at most"]
    return Table(f"Two attributes: {m:,} interests, {n:,} objects, k = {K}", heads, rows)


def _same(one: Any, other: Any) -> bool:
    """Return whether both end with the same lists; arrivals are the objects' numbers here."""
    found = [
        made.lists().arrivals if isinstance(made, Board) else made.lists for made, _ in (one, other)
    ]
    return bool((found[0] == found[1]).all())
