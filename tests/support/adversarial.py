"""Hand-made sets of boxes that break indexes: each with the events that hurt it most."""

from __future__ import annotations

import numpy as np

from rangecast.model.boxes import Boxes

INF = np.inf


def _grid(d: int, values: list[float]) -> np.ndarray:
    return np.stack(np.meshgrid(*[values] * d), axis=-1).reshape(-1, d).astype(np.float64)


def cases() -> dict[str, tuple[Boxes, np.ndarray]]:
    """Name -> (boxes, events)."""
    n = 200
    ramp = np.arange(n, dtype=np.float64)[:, None]
    two = np.ones((1, 2))
    around = np.linspace(-1, n + 1, 300)[:, None] * two
    edges = np.concatenate([_grid(2, [0.0, 1.0, 5.0, 199.0, 200.0, INF]), around])
    free = np.full((n, 2), INF)
    rng = np.random.default_rng(7)
    sparse_lo, sparse_hi = np.full((n, 12), -INF), np.full((n, 12), INF)
    for i in range(n):
        for j in rng.choice(12, 2, replace=False):
            a, b = np.sort(rng.integers(0, 10, 2)).astype(float)
            sparse_lo[i, j], sparse_hi[i, j] = a, b
    sparse_events = rng.integers(0, 10, (100, 12)).astype(float)
    sparse_events[rng.random((100, 12)) < 0.2] = INF
    return {
        "none": (Boxes.of(np.zeros((0, 2)), np.zeros((0, 2))), edges),
        "one": (Boxes.of([[0.0, 0.0]], [[5.0, 5.0]]), edges),
        "no events": (Boxes.of([[0.0, 0.0]], [[5.0, 5.0]]), np.zeros((0, 2))),
        "all equal": (Boxes.of(np.zeros((n, 2)), np.full((n, 2), 5.0)), edges),
        "all nested": (Boxes.of(ramp / 2 * two, (n - ramp / 2) * two), edges),
        "all touching": (Boxes.of(ramp * two, (ramp + 1) * two), edges),
        "all points": (Boxes.of(ramp * two, ramp * two), edges),
        "all free": (Boxes.of(-free, free), edges),
        "all null": (Boxes.of(free, free), edges),
        "half null": (Boxes.of(np.c_[ramp, free[:, 1]], np.c_[ramp + 3, free[:, 1]]), edges),
        "one axis free": (Boxes.of(np.c_[ramp, -free[:, 1]], np.c_[ramp + 3, free[:, 1]]), edges),
        "huge numbers": (Boxes.of(ramp * two * 8e305, (ramp + 1) * two * 8e305), edges * 8e305),
        "neighbouring doubles": (
            Boxes.of(1 + ramp * two * 2**-52, 1 + (ramp + 1) * two * 2**-52),
            1 + np.arange(-2, n + 2)[:, None] * two * 2**-52,
        ),
        "one subscription, many boxes": (
            Boxes.of(ramp * two, (ramp + 5) * two, owner=np.zeros(n)),
            edges,
        ),
        "sparse": (Boxes.of(sparse_lo, sparse_hi), sparse_events),
    }
