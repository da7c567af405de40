"""Hypothesis strategies: spaces, boxes, events. Small grids, so that edges meet all the time."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rangecast.model.boxes import Boxes

INF = np.inf
MAX = np.finfo(np.float64).max
TINY = np.nextafter(0.0, 1.0)

COORDINATES = (-MAX, -3.0, -1.0, -TINY, 0.0, TINY, 0.5, 1.0, 2.0, np.nextafter(2.0, 3.0), 7.0, MAX)
"""Few values, so that boxes share edges with one another and with events."""


def coordinates() -> st.SearchStrategy[float]:
    return st.sampled_from(COORDINATES)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[float, float]:
    """One attribute of a box: a range, a point, one-sided, missing, or not mentioned."""
    kind = draw(st.sampled_from(["range", "point", "below", "above", "null", "known", "free"]))
    a, b = sorted((draw(coordinates()), draw(coordinates())))
    return {
        "range": (a, b),
        "point": (a, a),
        "below": (-MAX, a),
        "above": (a, MAX),
        "null": (INF, INF),
        "known": (-MAX, MAX),
        "free": (-INF, INF),
    }[kind]


@st.composite
def boxes(
    draw: st.DrawFn,
    dimensions: st.SearchStrategy[int] | None = None,
    max_rows: int = 30,
    max_boxes_per_row: int = 3,
) -> Boxes:
    """A set of subscriptions; many have several boxes, some are copies of others."""
    d = draw(dimensions if dimensions is not None else st.integers(1, 4))
    box = st.lists(intervals(), min_size=d, max_size=d)
    row = st.lists(box, min_size=1, max_size=max_boxes_per_row)
    rows = draw(st.lists(row, max_size=max_rows))
    if rows and draw(st.booleans()):
        rows = rows + [rows[i % len(rows)] for i in range(draw(st.integers(0, 5)))]
    owner = [i for i, row in enumerate(rows) for _ in row]
    flat = np.array([b for row in rows for b in row], dtype=np.float64).reshape(-1, d, 2)
    scores = draw(hnp.arrays(np.float64, len(rows), elements=st.sampled_from([0.0, 1.0, 2.5])))
    weights = None
    if draw(st.booleans()):
        some = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0])
        weights = draw(hnp.arrays(np.float64, (len(rows), d), elements=some))
    ids = [f"s{i}" for i in range(len(rows))] if draw(st.booleans()) else None
    return Boxes.of(
        flat[:, :, 0], flat[:, :, 1], owner=owner, ids=ids or None, scores=scores, weights=weights
    )


def points(dimensions: int, max_events: int = 20) -> st.SearchStrategy[np.ndarray]:
    """Events on the same few coordinates, with missing values."""
    values = st.one_of(coordinates(), st.just(INF))
    shape = st.tuples(st.integers(0, max_events), st.just(dimensions))
    return hnp.arrays(np.float64, shape, elements=values)


@st.composite
def boxes_and_points(draw: st.DrawFn, **options: object) -> tuple[Boxes, np.ndarray]:
    some = draw(boxes(**options))  # type: ignore[arg-type]
    return some, draw(points(some.dimensions))
