"""The saved searches of the market example, as filter texts.

    shape       share   what it is
    watch       30%     one stock in a band of prices
    list        12%     a few stocks below or above a price
    alert       14%     one stock, one threshold
    breakout     8%     one stock, leaving a band on either side (`or`)
    screen      14%     a sector, cheap, calm, liquid
    wide         4%     the same without a sector
    rotation     6%     two sectors (`or`, `in`) in a band of ratios
    except       5%     a sector without a stock or a branch (`!=`, `not`)
    session      4%     a sector during part of the day
    turnaround   2%     stocks that lose money (`is null`), or don't (`is not null`)
    halt         1%     trading halts

Most mention two to four attributes. Numbers are drawn for a whole shape at once; only the texts
are put together one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import quoted
from rangecast.workloads.draws import pick

WEIGHTED = ("symbol", "sector", "price", "risk")
"""Attributes that subscribers weight."""


class Listing(NamedTuple):
    """The stocks and their data at the open, one item per stock."""

    symbols: list[str]
    tree: Mapping[str, Sequence[str]]
    leaves: list[str]
    sector: I64
    open_price: F64
    open_ratio: F64
    risk: F64
    daily_move: F64
    usual_volume: F64
    popularity: F64

    def popular(self, rng: np.random.Generator, count: int) -> I64:
        """Return random stocks, popular ones more often."""
        return pick(rng, self.popularity, count)


def _band(name: str, low: float, high: float, style: int, decimals: int) -> str:
    """Return a range, in one of the notations that people use."""
    a, b = f"{low:.{decimals}f}", f"{high:.{decimals}f}"
    return (
        f"{name} between {a} and {b}",
        f"{a} <= {name} < {b}",
        f"{name} >= {a} and {name} <= {b}",
    )[style]


def _price_bands(
    rng: np.random.Generator, stock: I64, listing: Listing, narrow: float, broad: float
) -> list[str]:
    """Return a band around each stock's open, its half-width a share of the price."""
    count = len(stock)
    price = listing.open_price[stock]
    centre = price * (1.0 + rng.normal(0.0, 0.012, count))
    # At least two cents a side: no rounding makes a band empty.
    half = np.maximum(price * rng.uniform(narrow, broad, count), 0.02)
    low, high = np.maximum(centre - half, 0.01), centre + half
    style = rng.integers(0, 3, count)
    columns = (low.tolist(), high.tolist(), style.tolist())
    return [_band("price", a, b, s, 2) for a, b, s in zip(*columns, strict=True)]


def _ratio_bands(rng: np.random.Generator, count: int) -> list[str]:
    centre = np.exp(rng.normal(2.9, 0.4, count))
    half = centre * rng.uniform(0.1, 0.35, count)
    columns = (
        (centre - half).tolist(),
        (centre + half).tolist(),
        rng.integers(0, 3, count).tolist(),
    )
    return [_band("pe", a, b, s, 1) for a, b, s in zip(*columns, strict=True)]


def _min_volumes(rng: np.random.Generator, count: int) -> list[str]:
    shares = (np.rint(np.exp(rng.normal(8.2, 0.6, count)) / 100) * 100).astype(np.int64)
    return [f"volume >= {least}" for least in shares.tolist()]


def _calm(rng: np.random.Generator, count: int) -> list[str]:
    most = rng.uniform(0.2, 0.45, count).tolist()
    negated = (rng.random(count) < 0.15).tolist()
    return [
        f"not (risk > {m:.2f})" if no else f"risk <= {m:.2f}"
        for m, no in zip(most, negated, strict=True)
    ]


def _sectors(rng: np.random.Generator, count: int, listing: Listing) -> list[str]:
    """Return a random concept of the tree for each row: a leaf more often than a whole sector."""
    leaf = rng.integers(0, len(listing.leaves), count).tolist()
    branch = rng.integers(0, len(listing.tree), count).tolist()
    concepts = list(listing.tree)
    deep = (rng.random(count) < 0.65).tolist()
    return [
        listing.leaves[a] if down else concepts[b]
        for a, b, down in zip(leaf, branch, deep, strict=True)
    ]


def _optional_conditions(rng: np.random.Generator, share: float, texts: list[str]) -> list[str]:
    """Return " and TEXT" for a random `share` of the texts, "" for the others."""
    taken = (rng.random(len(texts)) < share).tolist()
    return [f" and {text}" if take else "" for text, take in zip(texts, taken, strict=True)]


def _watch(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    stock = listing.popular(rng, count)
    bands = _price_bands(rng, stock, listing, 0.004, 0.025)
    volume = _optional_conditions(rng, 0.3, _min_volumes(rng, count))
    trading = _optional_conditions(rng, 0.1, ["halted = false"] * count)
    return [
        f"symbol = {quoted(listing.symbols[s])} and {band}{more}{open_}"
        for s, band, more, open_ in zip(stock.tolist(), bands, volume, trading, strict=True)
    ]


def _list(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    size = rng.integers(2, 6, count)
    members = listing.popular(rng, int(size.sum()))
    first = np.cumsum(size) - size
    below = (rng.random(count) < 0.5).tolist()
    # The threshold is right for the first member, which is how such lists come about.
    threshold = (listing.open_price[members[first]] * rng.uniform(0.97, 1.03, count)).tolist()
    calm = _optional_conditions(rng, 0.4, _calm(rng, count))
    texts = []
    for i, (begin, length) in enumerate(zip(first.tolist(), size.tolist(), strict=True)):
        names = dict.fromkeys(listing.symbols[m] for m in members[begin : begin + length].tolist())
        sign = "<=" if below[i] else ">"
        listed = ", ".join(quoted(name) for name in names)
        texts.append(f"symbol in ({listed}) and price {sign} {threshold[i]:.2f}{calm[i]}")
    return texts


def _alert(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    stock = listing.popular(rng, count)
    move = rng.uniform(0.2, 2.0, count) * listing.daily_move[stock]
    falls = rng.random(count) < 0.5
    price = listing.open_price[stock] * np.where(falls, 1.0 - move, 1.0 + move)
    volume = _optional_conditions(rng, 0.25, _min_volumes(rng, count))
    columns = (stock.tolist(), price.tolist(), falls.tolist(), volume)
    return [
        f"symbol = {quoted(listing.symbols[s])} and price {'<' if fall else '>='} {p:.2f}{more}"
        for s, p, fall, more in zip(*columns, strict=True)
    ]


def _breakout(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    stock = listing.popular(rng, count)
    price = listing.open_price[stock]
    half = np.maximum(price * rng.uniform(0.5, 2.0, count) * listing.daily_move[stock], 0.02)
    columns = (stock.tolist(), (price - half).tolist(), (price + half).tolist())
    return [
        f"symbol = {quoted(listing.symbols[s])} and (price < {low:.2f} or price > {high:.2f})"
        for s, low, high in zip(*columns, strict=True)
    ]


def _screen(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    columns = (
        _sectors(rng, count, listing),
        _ratio_bands(rng, count),
        _optional_conditions(rng, 0.6, _calm(rng, count)),
        _optional_conditions(rng, 0.5, _min_volumes(rng, count)),
    )
    return [
        f"sector = {quoted(sector)} and {ratio}{calm}{volume}"
        for sector, ratio, calm, volume in zip(*columns, strict=True)
    ]


def _wide(rng: np.random.Generator, count: int, _: Listing, __: datetime) -> list[str]:
    ratio = rng.uniform(8.0, 14.0, count).tolist()
    columns = (ratio, _calm(rng, count), _optional_conditions(rng, 0.5, _min_volumes(rng, count)))
    return [f"pe < {r:.1f} and {calm}{volume}" for r, calm, volume in zip(*columns, strict=True)]


def _rotation(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    leaves = len(listing.leaves)
    first_leaf = rng.integers(0, leaves, count)
    second_leaf = (first_leaf + rng.integers(1, leaves, count)) % leaves
    style = rng.integers(0, 2, count).tolist()
    texts = []
    columns = (first_leaf.tolist(), second_leaf.tolist(), style, _ratio_bands(rng, count))
    for a, b, listed, ratio in zip(*columns, strict=True):
        first, second = quoted(listing.leaves[a]), quoted(listing.leaves[b])
        either = f"(sector = {first} or sector = {second})"
        texts.append(f"{f'sector in ({first}, {second})' if listed else either} and {ratio}")
    return texts


def _except(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    branches = [(concept, below) for concept, below in listing.tree.items() for _ in below]
    member = rng.random(count).tolist()
    # The omitted condition belongs to the sector, or leaving it out would mean nothing.
    stock = listing.popular(rng, count).tolist()
    style = rng.integers(0, 3, count).tolist()
    texts = []
    columns = (member, stock, style, _ratio_bands(rng, count), _min_volumes(rng, count))
    for share, s, kind, ratio, volume in zip(*columns, strict=True):
        concept, below = branches[listing.sector[s]]
        leaf = quoted(below[int(share * len(below))])
        out = (
            f"symbol != {quoted(listing.symbols[s])}",
            f"sector != {leaf}",
            f"not (sector = {leaf} or risk > 0.60)",
        )[kind]
        texts.append(f"sector = {quoted(concept)} and {out} and {ratio} and {volume}")
    return texts


def _session(rng: np.random.Generator, count: int, listing: Listing, opened: datetime) -> list[str]:
    begin = 30 * rng.integers(0, 12, count)
    end = np.minimum(begin + 30 * rng.integers(1, 4, count), 390)
    until = rng.integers(0, 2, count).tolist()
    stamps = [
        quoted((opened + timedelta(minutes=m)).strftime("%Y-%m-%dT%H:%M:%SZ"))
        for m in range(0, 391, 30)
    ]
    columns = (
        _sectors(rng, count, listing),
        _min_volumes(rng, count),
        (begin // 30).tolist(),
        (end // 30).tolist(),
        until,
    )
    texts = []
    for sector, volume, a, b, closed in zip(*columns, strict=True):
        window = (
            f"time between {stamps[a]} and {stamps[b]}"
            if closed
            else f"time >= {stamps[a]} and time < {stamps[b]}"
        )
        texts.append(f"sector = {quoted(sector)} and {volume} and {window}")
    return texts


def _turnaround(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    price = rng.uniform(5.0, 60.0, count).tolist()
    earning = rng.integers(0, 2, count).tolist()
    columns = (_sectors(rng, count, listing), price, earning, _calm(rng, count))
    return [
        f"pe is {'not null' if earns else 'null'} and sector = {quoted(sector)} "
        f"and price < {p:.2f} and {calm}"
        for sector, p, earns, calm in zip(*columns, strict=True)
    ]


def _halt(rng: np.random.Generator, count: int, listing: Listing, _: datetime) -> list[str]:
    sectors = _sectors(rng, count, listing)
    stock = listing.popular(rng, count).tolist()
    own = (rng.random(count) < 0.5).tolist()
    return [
        f"halted = true and symbol = {quoted(listing.symbols[s])}"
        if mine
        else f"halted = true and sector = {quoted(sector)}"
        for sector, s, mine in zip(sectors, stock, own, strict=True)
    ]


Shape = Callable[[np.random.Generator, int, Listing, datetime], list[str]]

SHAPES: dict[str, tuple[float, Shape]] = {
    "watch": (0.30, _watch),
    "list": (0.12, _list),
    "alert": (0.14, _alert),
    "breakout": (0.08, _breakout),
    "screen": (0.14, _screen),
    "wide": (0.04, _wide),
    "rotation": (0.06, _rotation),
    "except": (0.05, _except),
    "session": (0.04, _session),
    "turnaround": (0.02, _turnaround),
    "halt": (0.01, _halt),
}
"""Name -> share of the searches, and the function that writes them."""


def saved_searches(
    rng: np.random.Generator, count: int, listing: Listing, opened: datetime
) -> pa.Table:
    """Return searches of all shapes, mixed, with scores and weights."""
    shape = pick(rng, np.array([share for share, _ in SHAPES.values()]), count)
    ids, filters = [""] * count, [""] * count
    for number, (name, (_, write)) in enumerate(SHAPES.items()):
        rows = np.flatnonzero(shape == number).tolist()
        for row, text in zip(rows, write(rng, len(rows), listing, opened), strict=True):
            ids[row], filters[row] = f"{name}-{row}", text
    weights = np.round(rng.uniform(0.5, 3.0, (count, len(WEIGHTED))), 1)
    weights[rng.random(count) >= 0.2] = 1.0
    scores = np.round(np.exp(rng.normal(1.5, 0.8, count)), 2)
    columns = {"id": pa.array(ids, pa.string()), "filter": pa.array(filters, pa.string())}
    columns["score"] = pa.array(scores)
    columns |= {f"weight_{name}": pa.array(weights[:, j]) for j, name in enumerate(WEIGHTED)}
    return pa.table(columns)
