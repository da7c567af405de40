"""The market example: a day of quotes, and the searches that people saved. Start here.

Events are quotes of one trading day (30 January 2026, 14:30 to 21:00 UTC), in order of time:

    symbol    text        the stock; a few hundred, some quoted far more often than others
    sector    hierarchy   where the stock belongs: information > tech, media, ...
    price     number      in cents; log-normal at the open, then a random walk
    volume    integer     shares behind the quote; 0 while trading is halted
    pe        number      price over earnings; missing for the fifth of stocks that lose money
    risk      number      0 (calm) to 1; higher in risky sectors and after large moves
    time      timestamp   the crowd is largest at the open and at the close
    halted    boolean     few stocks, a quarter of an hour each, with the price standing still

Subscriptions are filters as people write them, with a score (what the subscriber pays) and, for
a fifth of them, weights for relaxed ranking; `searches` lists their shapes. An id says the shape:
`watch-17`, `screen-18`. An average quote matches well under one in a hundred of them.

    symbol = 'KQZ' and 41.20 <= price < 43.75
    sector = 'information' and pe between 9.5 and 14.0 and risk <= 0.35 and volume >= 2000
    symbol = 'ABC' and (price < 18.20 or price > 20.15)

Everything is made up. All but the texts of the filters is computed on whole columns: a million
quotes and 100,000 searches take seconds. Quotes are drawn in chunks with random numbers of their
own, so that many processes can make one day together (`quotes`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Boolean, Integer, Number
from rangecast.model.attributes.text import Hierarchy, String
from rangecast.model.attributes.timestamps import EPOCH, MICROSECOND, Timestamp
from rangecast.model.space import Space
from rangecast.workloads.base import Workload, takes, workload
from rangecast.workloads.draws import pick, stream, zipf
from rangecast.workloads.searches import Listing, saved_searches

SECTORS: dict[str, list[str]] = {
    "information": ["tech", "semiconductors", "telecom", "media"],
    "energy": ["oil and gas", "pipelines", "renewables"],
    "financials": ["banks", "insurance", "asset management"],
    "healthcare": ["pharma", "biotech", "devices"],
    "consumer": ["retail", "food", "autos", "apparel"],
    "industrials": ["aerospace", "machinery", "transport"],
    "utilities": ["electricity", "water"],
}
_TYPICAL_RISK = dict(zip(SECTORS, (0.5, 0.5, 0.35, 0.45, 0.4, 0.35, 0.2), strict=True))

OPEN = datetime(2026, 1, 30, 14, 30, tzinfo=UTC)
DAY = int(6.5 * 3600 * 1_000_000)
HALT = 15 * 60 * 1_000_000 / DAY
"""Length of a halt, as a share of the trading day."""
STEPS = 1024
"""Steps of a stock's price in a day."""
CHUNK = 1 << 12
"""Number of quotes that are drawn together."""
QUOTE = pa.schema(
    [
        ("id", pa.int64()),
        ("symbol", pa.string()),
        ("sector", pa.string()),
        ("price", pa.float64()),
        ("volume", pa.int64()),
        ("pe", pa.float64()),
        ("risk", pa.float64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("halted", pa.bool_()),
    ]
)
"""The columns of the events."""


def market_space() -> Space:
    """Return the space of the market example."""
    return Space(
        [
            String("symbol"),
            Hierarchy("sector", SECTORS),
            Number("price", min=0),
            Integer("volume", min=0),
            Number("pe", min=0),
            Number("risk", min=0, max=1),
            Timestamp("time"),
            Boolean("halted"),
        ]
    )


def _listing(rng: np.random.Generator, count: int) -> Listing:
    """Return the stocks, the most quoted first."""
    tickers: dict[str, None] = {}
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    while len(tickers) < count:
        drawn = rng.integers(0, 26, 4).tolist()
        tickers["".join(letters[i] for i in drawn[: rng.integers(3, 5)])] = None
    leaves = [leaf for below in SECTORS.values() for leaf in below]
    sector = rng.integers(0, len(leaves), count)
    concept_of = [concept for concept, below in SECTORS.items() for _ in below]
    typical = np.array([_TYPICAL_RISK[concept] for concept in concept_of])
    price: F64 = np.maximum(np.exp(rng.normal(3.8, 0.9, count)), 1.0).round(2)
    ratio = np.exp(rng.normal(2.9, 0.5, count))
    ratio[rng.random(count) < 0.2] = np.nan
    return Listing(
        symbols=list(tickers),
        tree=SECTORS,
        leaves=leaves,
        sector=sector,
        open_price=price,
        open_ratio=ratio,
        risk=np.clip(typical[sector] + rng.normal(0.0, 0.12, count), 0.02, 0.98),
        daily_move=rng.uniform(0.01, 0.03, count),
        usual_volume=np.exp(rng.normal(7.5, 0.8, count)),
        popularity=zipf(count, 0.8),
    )


class Day(NamedTuple):
    """State shared by all quotes of a day: the stocks, and the path of each price."""

    seed: int
    listing: Listing
    halt_begin: F64
    halt_end: F64
    """The halt of each stock, as shares of the day; most have none (inf)."""
    moves: F64
    """(stocks, STEPS + 1) log price relative to the open, after each step of trading time."""


def trading_day(seed: int, symbols: int) -> Day:
    """Return the trading day of a seed."""
    listing = _listing(stream(seed, "market/stocks"), symbols)
    rng = stream(seed, "market/day")
    begin = np.where(rng.random(symbols) < 0.05, rng.uniform(0.0, 1.0 - HALT, symbols), np.inf)
    moves = np.zeros((symbols, STEPS + 1))
    steps = rng.normal(size=(symbols, STEPS)) * listing.daily_move[:, None] / STEPS**0.5
    np.cumsum(steps, axis=1, out=moves[:, 1:])
    return Day(seed, listing, begin, begin + HALT, moves)


def _moments(moment: F64) -> F64:
    """Map positions of quotes to times of day, both as shares of the day.

    The map ascends, the steepest at noon: few quotes there, many at the open and at the close.
    """
    return np.asarray(0.4 * moment + 0.6 * np.sin(0.5 * np.pi * moment) ** 2)


def _moved(day: Day, stocks: I64, clock: F64) -> F64:
    """Return the change of each stock's log price up to a time, interpolated linearly."""
    step = np.minimum((clock * STEPS).astype(np.int64), STEPS - 1)
    before, after = day.moves[stocks, step], day.moves[stocks, step + 1]
    return np.asarray(before + (after - before) * (clock * STEPS - step))


def quotes(day: Day, chunk: int, events: int) -> pa.RecordBatch:
    """Return the quotes from `chunk * CHUNK` on, at most `CHUNK`, of a day that has `events`.

    Depends on nothing but these three: chunks may be made anywhere and in any order.
    """
    first = chunk * CHUNK
    count = min(CHUNK, events - first)
    listing, rng = day.listing, stream(day.seed, f"market/events/{chunk}")
    who = pick(rng, zipf(len(listing.symbols), 0.6), count)
    ids = np.arange(first, first + count)
    # One moment in each of `events` parts of the day: in order of time across all chunks.
    moment = _moments((ids + rng.random(count)) / events)
    begin, end = day.halt_begin[who], day.halt_end[who]
    halted = (begin <= moment) & (moment < end)
    # A stock's own clock stands still while it is halted, and so does its price.
    moved = _moved(day, who, np.minimum(moment, begin) + np.maximum(moment - end, 0.0))
    price = np.maximum(np.round(listing.open_price[who] * np.exp(moved), 2), 0.01)
    ratio = np.round(listing.open_ratio[who] * price / listing.open_price[who], 2)
    unrest = 0.1 * np.abs(moved) / listing.daily_move[who]
    risk = np.clip(listing.risk[who] + unrest * rng.random(count), 0.0, 1.0)
    volume = np.ceil(listing.usual_volume[who] * np.exp(rng.normal(0.0, 1.0, count)) / 100) * 100
    opened = (OPEN - EPOCH) // MICROSECOND
    times = opened + (moment * DAY).astype(np.int64)
    columns = [
        pa.array(ids),
        pa.array(listing.symbols).take(pa.array(who)),
        pa.array(listing.leaves).take(pa.array(listing.sector[who])),
        pa.array(price),
        pa.array(np.where(halted, 0, volume).astype(np.int64)),
        pa.array(ratio, mask=np.isnan(ratio)),
        pa.array(np.round(risk, 3)),
        pa.array(times).cast(pa.timestamp("us", tz="UTC")),
        pa.array(halted),
    ]
    return pa.record_batch(columns, schema=QUOTE)


def chunks(events: int) -> range:
    """Return the numbers of the chunks of this many quotes."""
    return range(-(-events // CHUNK))


@workload("market", source="our own example")
def market(
    seed: int,
    *,
    subscriptions: Annotated[int, takes("Number of saved searches.", ge=0)] = 10_000,
    events: Annotated[int, takes("Number of quotes.", ge=0)] = 1_000,
    symbols: Annotated[int, takes("Number of stocks.", ge=1, le=10_000)] = 400,
) -> Workload:
    """A day of stock quotes and saved searches; the recommended first workload."""
    day = trading_day(seed, symbols)
    batches = [quotes(day, chunk, events) for chunk in chunks(events)]
    tables = {
        "subscriptions": saved_searches(
            stream(seed, "market/subscriptions"), subscriptions, day.listing, OPEN
        ),
        "events": pa.Table.from_batches(batches, QUOTE),
    }
    return Workload("market", market_space(), tables)
