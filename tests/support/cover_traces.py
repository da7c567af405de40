"""Traces of subscriptions that come and go, played on a `CoverSet` beside the oracle."""

from __future__ import annotations

import numpy as np

from rangecast import Boxes, Filter, Number, Space
from rangecast.cover import CoverSet
from rangecast.model.simplest import simplest
from tests.support.cover_oracle import Neighbourhood

GRAPHS = (1, 2, 5, "all", "poset")
INF = np.inf


def space_of(dimensions: int) -> Space:
    return Space(Number(f"a{j}") for j in range(dimensions))


def random_boxes(rng: np.random.Generator, n: int, d: int, values: int = 12) -> Boxes:
    """On a small grid, so that much is covered; all kinds of ranges, equal ones, several boxes."""
    sizes = rng.choice([1, 1, 1, 2, 3], n)
    total = int(sizes.sum())
    ends = np.sort(rng.integers(0, values, (total, d, 2)), axis=2).astype(float)
    lo, hi = ends[..., 0], ends[..., 1]
    kind = rng.random((total, d))
    largest = np.finfo(np.float64).max
    lo[kind < 0.1], hi[(kind > 0.1) & (kind < 0.2)] = -largest, largest
    free = (kind > 0.2) & (kind < 0.4)
    lo[free], hi[free] = -INF, INF
    null = (kind > 0.4) & (kind < 0.42)
    lo[null] = hi[null] = INF
    copies = rng.random(total) < 0.2
    lo[copies], hi[copies] = lo[0], hi[0]
    return simplest(Boxes.of(lo, hi, owner=np.repeat(np.arange(n), sizes)), space_of(d))


def check_state(graph: CoverSet, right: Neighbourhood) -> None:
    """Every edge is right, and there are enough of them."""
    assert graph.uncovered() == right.uncovered()
    assert set(graph.advertised()) == right.advertised
    for row in right.arrival:
        above, known = right.above(row), graph.covered_by(row)
        assert len(known) == len(set(known))
        assert set(known) <= above
        assert bool(known) == bool(above), "Property 1"
        if graph.k == "all":
            assert set(known) == above
        elif graph.k == "poset":
            assert set(known) == right.nearest(row)
        else:
            assert len(known) <= graph.k


def play(
    graph: CoverSet,
    boxes: Boxes,
    commands: list[int],
    check_each: int = 1,
    filters: list[Filter] | None = None,
) -> None:
    """Let subscriptions of a pool come, and go at their next mention."""
    boxes = simplest(boxes, graph.space)
    right = Neighbourhood(boxes)
    for step, row in enumerate(commands):
        if row in right.arrival:
            assert graph.unsubscribe(row) == right.unsubscribe(row)
        elif filters is not None:
            assert graph.subscribe(row, filters[row]) == right.subscribe(row)
        else:
            assert list(graph.subscribe_many(boxes.take([row]))) == [right.subscribe(row)]
        if step % check_each == 0:
            check_state(graph, right)
    check_state(graph, right)
