"""Objects, interests and value changes of paper 001, section V and Appendix D.

An object has a position and a value (lower ranks first); an interest asks for the best objects of
a range of positions; an update gives an object a new value. Updates apply to what the ones before
left.

    objects      id, position, value          (x, z, value in 1.5 dimensions)
    interests    id, position_lo, position_hi (x_lo, x_hi, z_lo, always null, z_hi)
    updates      id, value                    in order

Positions and values lie in [0, 1]. The space holds the attributes of interests. The paper's
settings: 10,000 objects, 2 million interests, 50,000 updates where it counts them.

Where the paper is silent:
- First values are uniform. The values of lambda and c stand in its figures only; the ones here are
  a guess.
- "Increased or decreased, then uniform over the possible range": U(0, y) or U(y, 1).
- A Gaussian change that leaves [0, 1] is reflected at the end.
- The clustered interests' density is Gaussian (the square of the norm is missing in print) on the
  centres of 10,000 x 10,000 cells with l < r, drawn exactly.
- Clusters of objects, and of interests that follow them, are equally large; both ends of such an
  interest are drawn around its centre, then ordered.
- 1.5 dimensions: where too few objects lie to the right, the range ends at 1.
- The stock trace is made up, since theirs is not published: see `stocks`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.workloads.base import Workload, box_table, takes, workload
from rangecast.workloads.draws import ordered_pairs, pick, stream, turns

CLUSTERS = 10
GAP = 1.0 / (CLUSTERS + 1)
"""w: cluster centres cut the range of x into 11 segments of this length."""
CENTRES: F64 = np.arange(1.0, CLUSTERS + 1.0) * GAP
GRID = 10_000


def _around(rng: np.random.Generator, centres: F64, size: tuple[int, ...]) -> F64:
    """Return positions around centres, with rows spread evenly; standard deviation w / 8."""
    mine = np.resize(centres, size[0]).reshape(-1, *[1] * (len(size) - 1))
    return np.asarray(np.clip(mine + rng.normal(0.0, GAP / 8, size), 0.0, 1.0))


def _grid_clusters(rng: np.random.Generator, count: int, spread: float) -> tuple[F64, F64]:
    """Return pairs l < r of grid points from a mixture of Gaussians around random centres."""
    points = (np.arange(GRID) + 0.5) / GRID
    centres = np.stack(ordered_pairs(rng, CLUSTERS), axis=1)
    sigma = spread / 4
    axis_density = np.exp(-0.5 * ((points - centres[:, :, None]) / sigma) ** 2)
    mass = axis_density.sum(axis=2)
    if not mass.all():
        raise UsageError(f"spread {spread} is too small for a grid of {GRID} points; try 0.01")
    cluster_share = mass.prod(axis=1) / mass.prod(axis=1).sum()
    chosen = np.empty((0, 2))
    while len(chosen) < count:
        # Ask for more than is missing: pairs with l >= r are dropped, cluster and all.
        cluster = pick(rng, cluster_share, 2 * (count - len(chosen)) + 100)
        pairs = np.empty((len(cluster), 2))
        for number in range(CLUSTERS):
            rows = np.flatnonzero(cluster == number)
            for side in (0, 1):
                share = axis_density[number, side] / mass[number, side]
                pairs[rows, side] = points[pick(rng, share, len(rows))]
        chosen = np.concatenate([chosen, pairs[pairs[:, 0] < pairs[:, 1]]])
    return chosen[:count, 0], chosen[:count, 1]


def _interests(rng: np.random.Generator, count: int, kind: str, spread: float) -> tuple[F64, F64]:
    if kind == "uniform":
        return ordered_pairs(rng, count)
    if kind == "clustered":
        return _grid_clusters(rng, count, spread)
    centres = CENTRES[:-1] + GAP / 2 if kind == "anti-correlated" else CENTRES
    ends = np.sort(_around(rng, centres, (count, 2)), axis=1)
    return ends[:, 0], ends[:, 1]


def _updates(
    rng: np.random.Generator, y: F64, count: int, change: str, volatility: float
) -> pa.Table:
    """Return `count` updates of random objects, each relative to the object's latest value."""
    changed: I64 = rng.integers(0, max(len(y), 1), count if len(y) else 0)
    up, share = rng.random(len(changed)) < 0.5, rng.random(len(changed))
    step = rng.normal(0.0, volatility / 8, len(changed))
    now, new = y.copy(), np.empty(len(changed))
    for rows in turns(changed):
        old = now[changed[rows]]
        if change == "random":
            end = np.where(up[rows], 1.0, 0.0)
            value = old + (end - old) * share[rows]
        else:
            value = np.abs(old + step[rows]) % 2.0
            value = np.where(value > 1.0, 2.0 - value, value)
        now[changed[rows]] = new[rows] = value
    return pa.table({"id": pa.array(changed), "value": pa.array(new)})


def _objects(**columns: F64) -> pa.Table:
    ids = np.arange(len(columns["value"]))
    return pa.table({"id": pa.array(ids)} | {k: pa.array(v) for k, v in columns.items()})


@workload("topk", source="paper 001, section V")
def topk(
    seed: int,
    *,
    objects: Annotated[int, takes("Number of objects.", ge=0)] = 10_000,
    interests: Annotated[int, takes("Number of interests.", ge=0)] = 2_000_000,
    updates: Annotated[int, takes("Number of updates.", ge=0)] = 50_000,
    object_distribution: Annotated[
        Literal["uniform", "clustered"], takes("Where objects lie.")
    ] = "uniform",
    interest_distribution: Annotated[
        Literal["uniform", "clustered", "correlated", "anti-correlated"],
        takes("Where interests lie; (anti-)correlated: to clustered objects."),
    ] = "uniform",
    spread: Annotated[
        float, takes("lambda: spread of clustered interests, sigma = lambda / 4.", gt=0)
    ] = 0.25,
    change: Annotated[Literal["random", "gaussian"], takes("How values change.")] = "random",
    volatility: Annotated[
        float, takes("c: standard deviation of gaussian changes, times 8.", gt=0)
    ] = 1.0,
) -> Workload:
    """Objects with changing values, and interests in the best few of a range."""
    if interest_distribution.endswith("correlated") and object_distribution != "clustered":
        raise UsageError(
            f"interest_distribution {interest_distribution!r} follows the clusters of the objects: "
            "set object_distribution to 'clustered' too"
        )
    rng = stream(seed, "topk/objects")
    if object_distribution == "clustered":
        x = _around(rng, CENTRES, (objects,))
    else:
        x = rng.random(objects)
    y = rng.random(objects)
    rng = stream(seed, "topk/interests")
    lo, hi = _interests(rng, interests, interest_distribution, spread)
    tables = {
        "objects": _objects(position=x, value=y),
        "interests": box_table(["position"], lo[:, None], hi[:, None]),
        "updates": _updates(stream(seed, "topk/updates"), y, updates, change, volatility),
    }
    return Workload("topk", Space([Number("position", min=0, max=1)]), tables)


@workload("topk-1.5d", source="paper 001, Appendix D-C")
def topk_one_and_a_half(
    seed: int,
    *,
    objects: Annotated[int, takes("Number of objects.", ge=0)] = 10_000,
    interests: Annotated[int, takes("Number of interests.", ge=0)] = 400_000,
    updates: Annotated[int, takes("Number of updates.", ge=0)] = 50_000,
    covered: Annotated[
        int, takes("Objects in each range of x: 1000, 100; 0: two random ends.", ge=0)
    ] = 0,
) -> Workload:
    """Interests with a range of x and an upper bound of z: data sets 1 (0), 2 (1000), 3 (100)."""
    rng = stream(seed, "topk-1.5d/objects")
    x, z, y = rng.random((3, objects))
    rng = stream(seed, "topk-1.5d/interests")
    if covered:
        lo = rng.random(interests)
        places = np.append(np.sort(x), 1.0)
        last = np.searchsorted(places[:-1], lo) + covered - 1
        hi = places[np.minimum(last, objects)]
    else:
        lo, hi = ordered_pairs(rng, interests)
    z_hi = rng.random(interests)
    table = box_table(["x"], lo[:, None], hi[:, None])
    table = table.append_column("z_lo", pa.nulls(interests, pa.float64()))
    tables = {
        "objects": _objects(x=x, z=z, value=y),
        "interests": table.append_column("z_hi", pa.array(z_hi)),
        "updates": _updates(stream(seed, "topk-1.5d/updates"), y, updates, "random", 1.0),
    }
    space = Space([Number("x", min=0, max=1), Number("z", min=0, max=1)])
    return Workload("topk-1.5d", space, tables)


@workload("topk-stocks", source="paper 001, section V (Yahoo! Finance trace, made up)")
def stocks(
    seed: int,
    *,
    objects: Annotated[int, takes("Number of stocks.", ge=0)] = 2_031,
    interests: Annotated[int, takes("Number of interests.", ge=0)] = 400_000,
    days: Annotated[int, takes("Trading days, an open and a close price each.", ge=1)] = 30,
) -> Workload:
    """Stocks: the position is the analysts' mean recommendation, the value the P/E ratio.

    The shape is the paper's: a recommendation of 1 (strong buy) to 5 (strong sell) that stays,
    and a ratio that moves a little at each open and close. Our choices: recommendations are means
    of 1 to 30 ratings, all distinct as in the paper; earnings are positive; overnight moves have a
    standard deviation of 1%, daily ones of 1% to 3% by stock; prices are in cents; within an open
    or close the stocks report in random order; interests are uniform on 1 <= l < r <= 5. The
    objects hold the first open; the other 2 x days - 1 prices are the updates.
    """
    rng = stream(seed, "topk-stocks/objects")
    leaning = rng.normal(2.4, 0.5, objects)
    noise = rng.normal(0.0, 0.8, objects) / np.sqrt(rng.integers(1, 30, objects, endpoint=True))
    x: F64 = 5.0 - np.abs(4.0 - np.abs(leaning + noise - 1.0))  # what lies outside is folded back
    first_price = np.exp(rng.normal(3.4, 0.8, objects))
    earnings = first_price / np.exp(rng.normal(2.9, 0.5, objects))
    daily = rng.uniform(0.01, 0.03, objects)
    rng = stream(seed, "topk-stocks/updates")
    moves = rng.normal(size=(2 * days, objects)) * np.where(
        np.arange(2 * days)[:, None] % 2, daily, 0.01
    )
    moves[0] = 0.0
    prices = np.maximum(np.round(first_price * np.exp(moves.cumsum(axis=0)), 2), 0.01)
    y = prices / earnings
    changed = rng.permuted(np.tile(np.arange(objects), (2 * days - 1, 1)), axis=1)
    new = np.take_along_axis(y[1:], changed, axis=1)
    lo, hi = ordered_pairs(stream(seed, "topk-stocks/interests"), interests)
    tables = {
        "objects": _objects(position=x, value=y[0]),
        "interests": box_table(["position"], 1.0 + 4.0 * lo[:, None], 1.0 + 4.0 * hi[:, None]),
        "updates": pa.table({"id": pa.array(changed.ravel()), "value": pa.array(new.ravel())}),
    }
    return Workload("topk-stocks", Space([Number("position", min=1, max=5)]), tables)
