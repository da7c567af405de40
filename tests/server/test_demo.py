"""The fleet demo: the same city for the same seed, and every kind of fence is entered."""

from __future__ import annotations

from collections import Counter

import pytest

from rangecast import Engine
from rangecast.cli.commands.server.serve import with_name
from rangecast.server.demo.city import City


def test_a_seed_is_a_city() -> None:
    first, second, other = City(3), City(3), City(4)
    assert first.fences() == second.fences() != other.fences()
    drives = [[city.advance(15.0) for _ in range(50)] for city in (first, second, other)]
    assert drives[0] == drives[1] != drives[2]
    positions = {(one["lon"], one["lat"]) for events in drives[0] for one in events}
    assert len(positions) > 1_500  # they move


def test_vehicles_keep_to_the_roads_and_enter_every_kind_of_fence() -> None:
    city = City()
    engine = Engine(city.space())
    for name, text in city.fences().items():
        engine.subscribe(name, text)
    entered: Counter[str] = Counter()
    for _ in range(300):
        for event in city.advance(15.0):
            assert abs(event["lon"] - 13.4) < 0.1
            assert abs(event["lat"] - 52.5) < 0.06
            entered.update(map(str, engine.match(event)))
    kinds = ("West", "Clean air zone", "Depot East", "School 1: too fast", "Line 1", "Airport")
    assert all(entered[name] for name in (*kinds, "Ring road: too fast"))
    assert not entered["Out of town"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--demo"], ["--demo", "market"]),
        (["--demo", "--port", "0"], ["--demo", "market", "--port", "0"]),
        (["--demo", "fleet"], ["--demo", "fleet"]),
        (["--port", "0"], ["--port", "0"]),
    ],
)
def test_a_demo_without_a_name_is_the_market(given: list[str], meant: list[str]) -> None:
    assert with_name(given) == meant
