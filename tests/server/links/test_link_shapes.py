"""Shapes across links: the cover travels, and subscribers get exactly what lies in their shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import shapely

from rangecast import Client
from tests.server.links.test_manager import serving, until
from tests.shapes.test_servers import EAST, HOLED, SPACE, WEST, expected, positions


def messages(client: Client, count: int) -> dict[int, list[Any]]:
    """Return the messages of a consumer, when there are as many."""

    def received() -> Any:
        items = client.messages("c", limit=1000).items
        return items if len(items) >= count else None

    return {one.event["id"]: sorted(map(str, one.subscriptions)) for one in until(received)}


def test_links_carry_the_cover_and_subscribers_get_exactly_their_shapes(tmp_path: Path) -> None:
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
            for name, text in filters.items():
                client.subscribe(name, text, consumer="c")
            until(lambda c=client, f=filters: all(c.wait_until_propagated(one) for one in f))
        events = positions(150, seed=4)
        at_hub.publish(events[:75])
        at_east.publish(events[75:110])
        at_west.publish(events[110:])
        for client, filters in ((at_east, EAST), (at_west, WEST)):
            wanted = expected(filters, events)
            assert len(wanted) > 10
            assert messages(client, len(wanted)) == wanted
        polygon = shapely.from_wkt(HOLED)
        covered = {
            one["id"] for one in events if polygon.covers(shapely.Point(one["lon"], one["lat"]))
        }
        got = messages(at_east, 1)
        assert {number for number, names in got.items() if "holed" in names} == covered
