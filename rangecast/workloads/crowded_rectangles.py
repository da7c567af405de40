"""The alpha-beta workload of paper 002, section 3.1.

A share alpha of the predicates has its bottom-left corner in a rectangle in the middle that has
a share beta of the area; widths are uniform on 1 .. max_width, heights on 1 .. max_height. Events
follow the same rule. The paper's settings: 300 x 200 (RxRy = 60,000) and, say, 2,000 x 1,500
(3,000,000); uniform (alpha = beta), 0.9-0.1 and 0.9-0.01; 32,000 .. 256,000 predicates.

Where the paper is silent:
- The other predicates lie outside the middle rectangle, so that the shares are what they say.
- The middle rectangle has the shape of the space, its sides rounded to whole numbers.
- A predicate may reach past the right or upper end. The table keeps its full width, so that
  decompositions can be compared with the paper; a reader clips it to the space.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from rangecast.kernels.arrays import I64
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.space import Space
from rangecast.workloads.base import Workload, box_table, event_table, takes, workload
from rangecast.workloads.draws import stream


def middle(extent: tuple[int, int], beta: float) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the corner and the sides of the crowded rectangle in the middle."""
    sides = [max(1, round(length * beta**0.5)) for length in extent]
    corner = [(length - side) // 2 for length, side in zip(extent, sides, strict=True)]
    return (corner[0], corner[1]), (sides[0], sides[1])


def _points(
    rng: np.random.Generator, count: int, extent: tuple[int, int], alpha: float, beta: float
) -> I64:
    """Return whole-numbered points, (count, 2), by the alpha-beta rule."""
    (left, bottom), (wide, high) = middle(extent, beta)
    width, height = extent
    outside = width * height - wide * high
    points = np.empty((count, 2), dtype=np.int64)
    crowded = rng.random(count) < (alpha if outside else 1.0)
    crowd = int(crowded.sum())
    points[crowded, 0] = left + rng.integers(0, wide, crowd)
    points[crowded, 1] = bottom + rng.integers(0, high, crowd)
    # Number the cells outside: whole rows below the middle, then the rows beside it, then above.
    cell = rng.integers(0, max(outside, 1), count - crowd)
    beside, first_above = cell - bottom * width, bottom * width + high * (width - wide)
    row_beside, column_beside = np.divmod(beside, max(width - wide, 1))
    column_beside = column_beside + np.where(column_beside >= left, wide, 0)
    row_above, column_above = np.divmod(cell - first_above, width)
    zones = [beside < 0, cell < first_above]
    x = np.select(zones, [cell % width, column_beside], column_above)
    y = np.select(zones, [cell // width, bottom + row_beside], bottom + high + row_above)
    points[~crowded] = np.stack([x, y], axis=1)
    return points


@workload("crowded-rectangles", source="paper 002, section 3.1")
def crowded_rectangles(
    seed: int,
    *,
    subscriptions: Annotated[int, takes("Number of predicates.", ge=0)] = 32_000,
    events: Annotated[int, takes("Number of event points.", ge=0)] = 100_000,
    width: Annotated[int, takes("Rx: x runs from 0 to width - 1.", ge=1)] = 300,
    height: Annotated[int, takes("Ry: y runs from 0 to height - 1.", ge=1)] = 200,
    max_width: Annotated[int, takes("Wx: widths are uniform on 1 .. max_width.", ge=1)] = 40,
    max_height: Annotated[int, takes("Wy: heights are uniform on 1 .. max_height.", ge=1)] = 20,
    alpha: Annotated[float, takes("Share of corners in the middle.", ge=0, le=1)] = 0.9,
    beta: Annotated[
        float, takes("Share of the area in the middle; alpha = beta is uniform.", gt=0, le=1)
    ] = 0.1,
    real_events: Annotated[bool, takes("Events between the whole numbers too.")] = False,
) -> Workload:
    """Rectangles on a whole-numbered plane that crowd in its middle."""
    extent = (width, height)
    rng = stream(seed, "vcr/subscriptions")
    lo = _points(rng, subscriptions, extent, alpha, beta)
    sizes = np.stack(
        [rng.integers(1, most, subscriptions, endpoint=True) for most in (max_width, max_height)],
        axis=1,
    )
    rng = stream(seed, "vcr/events")
    points = _points(rng, events, extent, alpha, beta)
    if real_events:
        space = Space([Number("x", min=0, max=width), Number("y", min=0, max=height)])
        places = event_table(space.names, points + rng.random(points.shape))
    else:
        space = Space([Integer("x", min=0, max=width - 1), Integer("y", min=0, max=height - 1)])
        places = event_table(space.names, points)
    tables = {
        "subscriptions": box_table(space.names, lo, lo + sizes),
        "events": places,
    }
    return Workload("crowded-rectangles", space, tables)
