"""Offers with budgets: every page view shows the three best offers that can still pay for it.

    python examples/offers/budgets.py

An offer says whom it wants (age and credit, as in offers.csv), what it pays per view, and how much
it may spend. Views are ranked in batches. An offer whose budget is spent leaves the set at once;
only the views of the batch that would have shown it are ranked again. So the result is the same as
with one view at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from rangecast import Engine, Space

SPACE = Space.load(Path(__file__).with_name("space.toml"))
SLOTS = 3
BATCH = 256


class Offer(NamedTuple):
    """Whom an offer wants, what it pays per view, and how much in all; in cents."""

    id: str
    ages: tuple[int, int]
    credit: int
    bid: int
    budget: int

    def row(self) -> dict[str, object]:
        """Return the subscription: what the offer pays is its score."""
        wanted = f"age between {self.ages[0]} and {self.ages[1]} and credit > {self.credit}"
        return {"id": self.id, "filter": wanted, "score": self.bid}


class Exchange:
    """The offers that can still pay, and what each has left."""

    def __init__(self, offers: list[Offer]):
        self.engine = Engine(SPACE)
        self.engine.subscribe_many([one.row() for one in offers])
        self.left = {one.id: one.budget for one in offers}
        self.earned = 0

    def show(self, views: list[dict[str, float]]) -> list[list[str]]:
        """Return what each view shows, in order, and charge the offers for it."""
        shown = []
        for view, ranked in zip(views, self.engine.rank_many(views, k=SLOTS), strict=True):
            # Offers only ever leave: if none of these did, they are still the best.
            if any(offer not in self.engine for offer, _ in ranked):
                ranked = self.engine.rank(view, k=SLOTS)
            shown.append([self.charge(offer, int(bid)) for offer, bid in ranked])
        return shown

    def charge(self, offer: str, bid: int) -> str:
        """Take a bid from an offer's budget; what can't pay another one leaves."""
        self.left[offer] -= bid
        self.earned += bid
        if self.left[offer] < bid:
            self.engine.unsubscribe(offer)
        return offer


def drawn(offers: int, views: int) -> tuple[list[Offer], list[dict[str, float]]]:
    """Return offers and views, always the same."""
    rng = np.random.default_rng(1)
    made = []
    for number in range(offers):
        age = int(rng.integers(18, 70))
        ages = (age, age + int(rng.integers(5, 25)))
        bid, shows = int(rng.integers(10, 200)), int(rng.integers(1, 60))
        made.append(Offer(f"offer-{number}", ages, int(rng.integers(0, 700)), bid, bid * shows))
    people = zip(rng.integers(18, 90, views), rng.integers(300, 850, views), strict=True)
    return made, [{"age": int(age), "credit": int(credit)} for age, credit in people]


def main(offers: int = 1_000, views: int = 5_000) -> list[list[str]]:
    """Show all views, say what was earned, and return what was shown."""
    made, people = drawn(offers, views)
    exchange = Exchange(made)
    shown = []
    for start in range(0, views, BATCH):
        shown += exchange.show(people[start : start + BATCH])
    filled, earned = sum(map(len, shown)), exchange.earned
    print(f"{views:,} views with {SLOTS} slots: {filled:,} offers shown, {earned:,} cents earned")
    print(f"{len(exchange.engine):,} of {offers:,} offers have money left")
    return shown


if __name__ == "__main__":
    main()
