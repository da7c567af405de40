"""The Zipfian generator of paper 003, section 4 and Table 1.

Each axis of [0, 1) is cut into cells. Points fall into a few random regions of cells, by a
Zipfian share across regions, and thin out from the middle of a region; a point is uniform within
its cell. A subscription is a point and a half-length l an axis: [x - l, x + l]. Its score on an
axis is 1 - l. The defaults are those of Table 1.

Where the paper is silent:
- A region's share of the volume is uniform between its limits, spread over the axes at random
  (a flat Dirichlet draw of the logarithm), sides rounded to whole cells; it lies anywhere.
- Within a region a cell is drawn axis by axis, its probability in proportion to
  (1 + distance from the middle, in cells) ** -skew_within. On one axis this is the paper's rule.
- Half-lengths are r / cells, r = 1 .. cells, r Zipfian: so scores tie all the time, as theirs do.
- `score` is the sum of 1 - l over the axes, `weight_<attribute>` is 1 - l.
- Boxes may reach past [0, 1]; the table keeps them, a reader clips them.
- The 100 warm-up queries are like the others: ask for that many more events.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.workloads.base import Workload, box_table, event_table, numbered, takes, workload
from rangecast.workloads.draws import pick, stream, zipf


def regions_of(
    rng: np.random.Generator, count: int, axes: int, cells: int, least: float, most: float
) -> tuple[I64, I64]:
    """Return the first cell and the sides of each region, (count, axes) both."""
    volumes = rng.uniform(least, most, (count, 1))
    lengths = cells * volumes ** rng.dirichlet(np.ones(axes), count)
    sides = np.clip(np.rint(lengths), 1, cells).astype(np.int64)
    return rng.integers(0, cells - sides, endpoint=True), sides


def _points(
    rng: np.random.Generator,
    count: int,
    cells: int,
    regions: tuple[I64, I64],
    skew_across: float,
    skew_within: float,
) -> F64:
    """Return points of [0, 1), (count, axes)."""
    firsts, sides = regions
    region = pick(rng, zipf(len(firsts), skew_across), count)
    cell = np.empty((count, firsts.shape[1]), dtype=np.int64)
    for number, (first, side) in enumerate(zip(firsts, sides, strict=True)):
        rows = np.flatnonzero(region == number)
        for axis, length in enumerate(side):
            distance = np.abs(np.arange(length) - length // 2)
            thinning = (1.0 + distance) ** -skew_within
            cell[rows, axis] = first[axis] + pick(rng, thinning / thinning.sum(), len(rows))
    return np.asarray((cell + rng.random(cell.shape)) / cells)


@workload("ranked", source="paper 003, section 4, Table 1")
def ranked(
    seed: int,
    *,
    subscriptions: Annotated[int, takes("Number of subscriptions.", ge=0)] = 1_000_000,
    events: Annotated[int, takes("Number of query points.", ge=0)] = 1_000,
    attributes: Annotated[int, takes("d: number of axes.", ge=1)] = 1,
    cells: Annotated[int, takes("c: cells an axis, and different half-lengths.", ge=1)] = 100,
    regions: Annotated[int, takes("Regions that points fall into.", ge=1)] = 10,
    min_volume: Annotated[
        float, takes("Least share of the space that a region takes.", gt=0, le=1)
    ] = 0.05,
    max_volume: Annotated[
        float, takes("Largest share of the space that a region takes.", gt=0, le=1)
    ] = 0.05,
    skew_across: Annotated[float, takes("Zipf skew of points across regions.", ge=0)] = 0.0,
    skew_within: Annotated[float, takes("Zipf skew of points within a region.", ge=0)] = 1.0,
    skew_length: Annotated[float, takes("Zipf skew of the half-lengths.", ge=0)] = 0.75,
) -> Workload:
    """Scored boxes around crowded regions; the narrow ones score best."""
    if min_volume > max_volume:
        raise UsageError(f"min_volume {min_volume} is above max_volume {max_volume}")
    space = Space(Number(name, min=0, max=1) for name in numbered("a", attributes))
    places = regions_of(
        stream(seed, "ranked/regions"), regions, attributes, cells, min_volume, max_volume
    )
    rng = stream(seed, "ranked/subscriptions")
    middles = _points(rng, subscriptions, cells, places, skew_across, skew_within)
    lengths = (1 + pick(rng, zipf(cells, skew_length), middles.shape)) / cells
    weights = 1.0 - lengths
    scores = np.zeros(subscriptions)
    for axis in range(attributes):
        scores += weights[:, axis]
    rng = stream(seed, "ranked/events")
    points = _points(rng, events, cells, places, skew_across, skew_within)
    tables = {
        "subscriptions": box_table(
            space.names, middles - lengths, middles + lengths, scores=scores, weights=weights
        ),
        "events": event_table(space.names, points),
    }
    return Workload("ranked", space, tables)
