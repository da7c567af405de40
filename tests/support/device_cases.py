"""Boxes and events that are hard to code: few values, ends that touch, infinities."""

from __future__ import annotations

import numpy as np

from rangecast.model.boxes import Boxes

INF = np.inf


def hard_case(
    seed: int,
    boxes: int,
    events: int,
    dimensions: int,
    mentions: int,
    values: int,
    *,
    several: bool = False,
) -> tuple[Boxes, np.ndarray]:
    """Return subscriptions and events; up to `mentions` attributes a box, about `values` values."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(-values, values, 4 * values) * 0.5
    pool = np.concatenate([pool, [0.0, -0.0, 1e308, -1e308, 5e-324, np.finfo(float).max]])
    if values > 1000:
        pool = np.concatenate([pool, rng.normal(size=8 * values)])
    lo, hi = np.sort(rng.choice(pool, (2, boxes, dimensions)), axis=0)
    lo[rng.random(lo.shape) < 0.15] = -INF
    hi[rng.random(lo.shape) < 0.15] = INF
    hi[rng.random(lo.shape) < 0.1] = np.finfo(float).max
    wide = rng.random(lo.shape) < 0.4
    hi[wide] = np.maximum(hi[wide], lo[wide] + values)
    rank = rng.random(lo.shape).argsort(axis=1).argsort(axis=1)
    free = rank >= rng.integers(0, min(mentions, dimensions) + 1, boxes)[:, None]
    lo[free], hi[free] = -INF, INF
    null = ~free & (rng.random(lo.shape) < 0.01)
    lo[null] = hi[null] = INF
    copies = rng.integers(0, boxes, boxes // 8)
    lo[copies], hi[copies] = lo[copies[::-1]], hi[copies[::-1]]
    points = rng.choice(pool, (events, dimensions))
    points[rng.random(points.shape) < 0.08] = INF
    box = rng.integers(0, boxes, events)
    for bound in (lo, hi):
        take = (rng.random(points.shape) < 0.15) & np.isfinite(bound[box])
        points[take] = bound[box][take]
    near = (rng.random(points.shape) < 0.05) & (np.abs(points) < 1e300)
    points[near] = np.nextafter(points[near], np.where(rng.random(near.sum()) < 0.5, INF, -INF))
    owner = np.arange(boxes)
    if several:
        owner = np.unique(np.sort(rng.integers(0, boxes, boxes)), return_inverse=True)[1]
    scores = rng.integers(-3, 4, int(owner[-1]) + 1) * 0.5
    scores[scores == 0] = np.where(rng.random((scores == 0).sum()) < 0.5, 0.0, -0.0)
    return Boxes.of(lo, hi, owner=owner, scores=scores), points
