"""Price alerts: a day of quotes, and users who hear when a stock leaves its usual range.

    python examples/price_alerts.py

Quotes come in batches. An alert that holds rings, and rings again after half an hour at the
earliest. Before noon the process ends; another one opens the saved alerts and goes on, some users
change their bounds, and some leave.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast import Engine
from rangecast.workloads import generate

PAUSE = timedelta(minutes=30)
BATCH = 500


class Alert(NamedTuple):
    """A user wants to hear of a stock below `low` or above `high`."""

    id: str
    symbol: str
    low: float
    high: float

    def filter(self) -> str:
        """Return the filter of this alert, with the texts that a quote has."""
        return f"symbol = '{self.symbol}' and (price < {self.low} or price > {self.high})"


class Bell:
    """Knows when each alert rang last, so that nobody hears of the same thing all the time."""

    def __init__(self) -> None:
        self._rang: dict[str, datetime] = {}

    def rings(self, alert: str, time: datetime) -> bool:
        """Return whether an alert that holds at a time rings; then it rests for a while."""
        if alert in self._rang and time - self._rang[alert] < PAUSE:
            return False
        self._rang[alert] = time
        return True


def answer(engine: Engine, bell: Bell, quotes: pa.Table) -> Iterator[tuple[str, int]]:
    """Yield the alerts that ring in a batch, each with the id of its quote."""
    found = engine.match_many(quotes)
    for quote, time, alerts in zip(
        quotes["id"].to_pylist(), quotes["time"].to_pylist(), found, strict=True
    ):
        yield from ((alert, quote) for alert in alerts if bell.rings(alert, time))


def drawn(quotes: pa.Table, users: int, share: float) -> list[Alert]:
    """Return five alerts per user: a stock that is `share` away from its first price."""
    first: dict[str, float] = {}
    for symbol, price in zip(
        quotes["symbol"].to_pylist(), quotes["price"].to_pylist(), strict=True
    ):
        first.setdefault(symbol, price)
    rng = np.random.default_rng(1)
    symbols = list(first)
    alerts = []
    for user in range(users):
        for symbol in rng.choice(symbols, 5, replace=False).tolist():
            low, high = first[symbol] * (1 - share), first[symbol] * (1 + share)
            alerts.append(Alert(f"user-{user}/{symbol}", symbol, round(low, 2), round(high, 2)))
    return alerts


def main(users: int = 1_000, events: int = 10_000) -> list[tuple[str, int]]:
    """Run the day, say what happened, and return who heard of which quote."""
    market = generate("market", seed=1, subscriptions=1, events=events)
    quotes = market.tables["events"]
    noon = events // BATCH // 2 * BATCH
    alerts = drawn(quotes, users, share=0.02)
    engine, bell = Engine(market.space), Bell()
    engine.subscribe_many([{"id": one.id, "filter": one.filter()} for one in alerts])
    rung = []
    for start in range(0, noon, BATCH):
        rung += answer(engine, bell, quotes.slice(start, BATCH))
    print(f"{len(engine):,} alerts, {noon:,} quotes in the morning: {len(rung):,} alerts rang")

    with tempfile.TemporaryDirectory() as folder:
        engine.save(Path(folder) / "alerts")
        engine = Engine.open(Path(folder) / "alerts")
        changed, left = later(alerts, quotes)
        for one in changed:
            engine.replace(one.id, one.filter())
        engine.unsubscribe_many(left)
        morning = len(rung)
        for start in range(noon, events, BATCH):
            rung += answer(engine, bell, quotes.slice(start, BATCH))
        print(f"{len(changed):,} alerts were changed, {len(left):,} were given up")
        print(f"{len(engine):,} alerts in the afternoon: {len(rung) - morning:,} rang")
    return rung


def later(alerts: list[Alert], quotes: pa.Table) -> tuple[list[Alert], list[str]]:
    """Return the alerts that are wider after noon, and the ids of those that are given up."""
    users = len(alerts) // 5
    wider = drawn(quotes, users, share=0.03)
    return wider[: len(wider) // 4], [one.id for one in alerts[-len(alerts) // 10 :]]


if __name__ == "__main__":
    main()
