"""Range top-k messages for shapes: a board that verifies objects, beside boxes and lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import expected
from experiments.timing import DisagreementError, race
from rangecast import Arithmetic, Number, Point, Space
from rangecast.kernels.arrays import F64
from rangecast.notify import Board
from rangecast.report.markdown import Table

K = 10
RATIO = 20.0
"""Expected: times the lists of disks worked out."""
Changes = list[tuple[int, float]]

ABOUT = f"""
**Shapes.** Objects are uniform in a square of side 100, and so are the centres of disks with radii
of 2 to 10, of octagons in these disks and of boxes around them; triangles and halfspaces have
directions of their own; k = {K}. *Disks, worked out* is the plain alternative: NumPy compares an
object with all disks, and works out the list of each that it lies in. That messages keep all lists
right is checked.

Expected: disks take at least {RATIO:.0f} times the updates of disks worked out.
"""


def _space() -> Space:
    sides = [Number(name, min=0, max=100) for name in ("x", "y")]
    return Space([*sides, Point("place"), Arithmetic("sums")])


def _filters(centres: F64, radii: F64) -> dict[str, list[str]]:
    """Return the interests of each kind; every tenth place has a halfspace."""
    made: dict[str, list[str]] = {}
    for (a, b), r in zip(centres.tolist(), radii.tolist(), strict=True):
        corners = [(a + r * math.cos(t), b + r * math.sin(t)) for t in np.arange(9) * math.pi / 4]
        corners[-1] = corners[0]
        ring = ", ".join(f"{x} {y}" for x, y in corners)
        slope = 1 + r / 10
        box = f"x between {a - r} and {a + r} and y between {b - r} and {b + r}"
        made.setdefault("boxes", []).append(box)
        made.setdefault("disks", []).append(f"within(place, circle({a}, {b}, {r}))")
        made.setdefault("octagons", []).append(f"within(place, 'POLYGON (({ring}))')")
        triangle = f"x >= {a} and y >= {b} and x + {slope} * y <= {a + b * slope + r}"
        made.setdefault("triangles", []).append(triangle)
        half = f"{math.cos(r)} * x + {math.sin(r)} * y >= {math.cos(r) * a + math.sin(r) * b}"
        made.setdefault("halfspaces", []).append(half)
    made["halfspaces"] = made["halfspaces"][::10]
    return made


def _worked_out(at: F64, ys: F64, centres: F64, radii: F64, changes: Changes) -> int:
    """Apply changes, and compute the lists of all disks around the object; return their number."""
    ys, lists = ys.copy(), 0
    for one, y in changes:
        ys[one] = y
        for row in np.flatnonzero(((centres - at[one]) ** 2).sum(axis=1) <= radii**2):
            inside = np.flatnonzero(((at - centres[row]) ** 2).sum(axis=1) <= radii[row] ** 2)
            lists += len(inside[np.argsort(ys[inside], kind="stable")[:K]]) > 0
    return lists


def shapes(quick: bool, runs: int) -> Table:
    """Time single updates for each kind of interest."""
    n, m, updates, few = (300, 200, 40, 10) if quick else (10_000, 10_000, 2_000, 50)
    rng = np.random.default_rng(1)
    at, ys = rng.uniform(0, 100, (n, 2)), rng.uniform(0, 1, n)
    centres, radii = rng.uniform(0, 100, (m, 2)), rng.uniform(2, 10, m)
    objects = {"id": np.arange(n), "x": at[:, 0], "y": at[:, 1], "value": ys}
    changed = rng.integers(0, n, 2 * updates).tolist()
    changes = list(zip(changed, rng.uniform(0, 1, 2 * updates).tolist(), strict=True))
    filters = _filters(centres, radii)

    def board(kind: str) -> Any:
        wishes = {"id": np.arange(len(filters[kind])), "filter": filters[kind]}
        return Board(K, space=_space(), objects=objects, interests=wishes)

    def play(kind: str) -> Callable[[], int]:
        found = board(kind)
        found.update_many(changes[:updates])  # views are filled at their first change
        return lambda: len(found.update_many(changes[updates:]))

    for kind in filters:
        verified = board(kind)
        lists = verified.lists()
        lists.deliver(verified.update_many(changes[:few]))
        if wrong := len(verified.mismatches(lists)):
            raise DisagreementError(f"{wrong} lists of {kind} differ from a recomputation")
    ways = {kind: partial(play, kind) for kind in filters}
    plain = partial(_worked_out, at, ys, centres, radii, changes[:few])
    raced = race(ways, rounds=runs) | race({"disks, worked out": lambda: plain}, rounds=1)
    slowest = raced["disks, worked out"].least / few
    rows = []
    for kind, one in raced.items():
        is_plain = kind not in filters
        count = few if is_plain else updates
        ratio = slowest * count / one.least
        rows.append(
            [
                *(kind, len(filters.get(kind, centres)), count / one.least, ratio),
                expected(ratio, least=RATIO if kind == "disks" else None),
                None if is_plain else one.answer / count,
            ]
        )
    heads = ["", "interests", "updates/s", "x worked out", "expected", "messages per update"]
    return Table(f"Shapes: {n:,} objects, k = {K}", heads, rows)
