"""Texts across links: ranges travel, and subscribers get exactly what their conditions match."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from rangecast import Client, Number, Space, Text
from tests.server.links.test_link_shapes import messages
from tests.server.links.test_manager import serving, until
from tests.text.oracle import Condition, holds

SPACE = Space([Text("title"), Number("price")])
Filters = dict[str, tuple[str, list[tuple[Condition, bool]], int]]
EAST: Filters = {
    "prefix": ("title like 're%' and price > 3", [(("like", "re%", False), False)], 4),
    "long": ("starts_with(title, 'red bike')", [(("starts_with", "red bike", False), False)], 0),
    "words": (
        "words(title) has all ('OLD', 'bike')",
        [(("all", ["old", "bike"], False), False)],
        0,
    ),
}
WEST: Filters = {
    "not": ("title not like '%bike%' and price > 3", [(("like", "%bike%", False), True)], 4),
    "case": ("title contains 'CITY' ignore case", [(("contains", "city", True), False)], 0),
    "value": ("title = 'red bike'", [(("equal", ["red bike"], False), False)], 0),
}


def offers(count: int) -> list[dict[str, Any]]:
    turn = random.Random(3)
    words = ["red", "bike", "old", "City"]
    made = []
    for number in range(count):
        title = " ".join(turn.choices(words, k=turn.randint(1, 3)))
        made.append({"id": number, "title": title, "price": turn.randint(0, 9)})
    return made


def expected(filters: Filters, events: list[dict[str, Any]]) -> dict[int, list[str]]:
    found = {}
    for event in events:
        names = [
            name
            for name, (_, conditions, least) in filters.items()
            if event["price"] >= least
            and all(holds(one, event["title"], negated) for one, negated in conditions)
        ]
        if names:
            found[event["id"]] = sorted(names)
    return found


def test_links_carry_ranges_and_subscribers_get_exactly_their_texts(tmp_path: Path) -> None:
    spaces = {"s": SPACE}
    with (
        serving(tmp_path, "hub", spaces=spaces) as hub,
        serving(tmp_path, "east", hub, spaces=spaces) as east,
        serving(tmp_path, "west", hub, spaces=spaces) as west,
        Client(east, space="s") as at_east,
        Client(west, space="s") as at_west,
        Client(hub, space="s") as at_hub,
    ):
        for client, filters in ((at_east, EAST), (at_west, WEST)):
            client.put_consumer("c")
            for name, (text, *_) in filters.items():
                client.subscribe(name, text, consumer="c")
            until(lambda c=client, f=filters: all(c.wait_until_propagated(one) for one in f))
        events = offers(120)
        at_hub.publish(events[:60])
        at_east.publish(events[60:90])
        at_west.publish(events[90:])
        for client, filters in ((at_east, EAST), (at_west, WEST)):
            wanted = expected(filters, events)
            assert len(wanted) > 10
            assert messages(client, len(wanted)) == wanted
