"""Sets whose subscriptions are all of one kind: nothing may depend on another kind being there.

What events must be encoded for follows from the conditions of a set. A set with prefixes only, or
with places only, must read what it needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rangecast import (
    Arithmetic,
    Boolean,
    Category,
    Engine,
    Integer,
    Number,
    Point,
    Space,
    String,
    Text,
    Timestamp,
)

SPACE = Space(
    [
        Number("price"),
        Integer("size"),
        String("symbol"),
        Text("title"),
        Text("note"),
        Category("colour", ["red", "green", "blue"]),
        Boolean("flag"),
        Timestamp("at"),
        Point("place"),
        Arithmetic("sums"),
    ]
)
LETTERS = "abAB é"
Holds = Callable[[dict[str, Any]], bool]
Made = tuple[str, Holds]


def text(r: random.Random, most: int = 12) -> str:
    return "".join(r.choices(LETTERS, k=r.randint(0, most)))


def event(r: random.Random) -> dict[str, Any]:
    made = {
        "price": r.randint(0, 20) / 2,
        "size": r.randint(0, 9),
        "symbol": r.choice("ABCDEF"),
        "title": text(r) if r.random() < 0.5 else "".join(r.choices("ab", k=9)),
        "note": text(r, 4),
        "colour": r.choice(["red", "green", "blue"]),
        "flag": r.random() < 0.5,
        "at": f"2026-01-{r.randint(1, 28):02}T00:00:00Z",
        "x": r.randint(0, 10),
        "y": r.randint(0, 10),
    }
    if r.random() < 0.1:
        del made["x"], made["y"]
    return {name: value for name, value in made.items() if name in "xy" or r.random() < 0.9}


def given(name: str, holds: Callable[[Any], bool]) -> Holds:
    """A condition that needs a value."""
    return lambda one: name in one and holds(one[name])


def number_range(r: random.Random) -> Made:
    low = r.randint(0, 15) / 2
    high = low + r.randint(0, 6) / 2
    return f"{low} <= price < {high + 1}", given("price", lambda v: low <= v < high + 1)


def integer(r: random.Random) -> Made:
    least = r.randint(0, 9)
    return f"size >= {least}", given("size", lambda v: v >= least)


def symbol(r: random.Random) -> Made:
    wanted = r.choice("ABCDEFG")
    return f"symbol = '{wanted}'", given("symbol", lambda v: v == wanted)


def symbols(r: random.Random) -> Made:
    wanted = set(r.sample("ABCDEFGH", 3))
    listed = ", ".join(f"'{one}'" for one in sorted(wanted))
    return f"symbol in ({listed})", given("symbol", lambda v: v in wanted)


def short_prefix(r: random.Random) -> Made:
    start = text(r, 2) + "a"
    return f"title like '{start}%'", given("title", lambda v: v.startswith(start))


def long_prefix(r: random.Random) -> Made:
    start = "".join(r.choices("ab", k=7))
    return f"title like '{start}%'", given("title", lambda v: v.startswith(start))


def suffix(r: random.Random) -> Made:
    end = text(r, 2) + "b"
    return f"ends_with(title, '{end}')", given("title", lambda v: v.endswith(end))


def part(r: random.Random) -> Made:
    inner = r.choice("abAB") + r.choice("abAB")
    return f"title contains '{inner}'", given("title", lambda v: inner in v)


def whole(r: random.Random) -> Made:
    wanted = text(r, 2)
    return f"note = '{wanted}'", given("note", lambda v: v == wanted)


def not_prefix(r: random.Random) -> Made:
    start = text(r, 1) + "a"
    return f"not note like '{start}%'", given("note", lambda v: not v.startswith(start))


def either_prefix(r: random.Random) -> Made:
    one, other = text(r, 2) + "A", text(r, 1) + "b"
    return (
        f"title like '{one}%' or note like '{other}%'",
        lambda e: e.get("title", "").startswith(one) or e.get("note", "").startswith(other),
    )


def colour(r: random.Random) -> Made:
    wanted = r.choice(["red", "green", "blue"])
    return f"colour != '{wanted}'", given("colour", lambda v: v != wanted)


def flag(r: random.Random) -> Made:
    wanted = r.random() < 0.5
    return f"flag = {str(wanted).lower()}", given("flag", lambda v: v is wanted)


def time(r: random.Random) -> Made:
    day = f"2026-01-{r.randint(1, 28):02}T00:00:00Z"
    return f"at >= '{day}'", given("at", lambda v: v >= day)


def missing(r: random.Random) -> Made:
    name = r.choice(["price", "symbol", "title", "note", "flag", "at"])
    return f"{name} is null", lambda e: name not in e


def present(r: random.Random) -> Made:
    name = r.choice(["price", "symbol", "title", "note", "flag", "at"])
    return f"{name} is not null", lambda e: name in e


def circle(r: random.Random) -> Made:
    x, y, radius = r.randint(0, 10), r.randint(0, 10), r.randint(1, 4)
    return (
        f"within(place, circle({x}, {y}, {radius}))",
        lambda e: "x" in e and (e["x"] - x) ** 2 + (e["y"] - y) ** 2 <= radius**2,
    )


def triangle(r: random.Random) -> Made:
    x, y, side = r.randint(0, 8), r.randint(0, 8), r.randint(1, 5)
    ring = f"{x} {y}, {x + side} {y}, {x} {y + side}, {x} {y}"
    return (
        f"within(place, 'POLYGON (({ring}))')",
        lambda e: "x" in e and e["x"] >= x and e["y"] >= y and e["x"] - x + e["y"] - y <= side,
    )


def coordinate(r: random.Random) -> Made:
    least = r.randint(0, 10)
    return f"x >= {least}", given("x", lambda v: v >= least)


def total(r: random.Random) -> Made:
    most = r.randint(0, 18)
    return (
        f"price + size <= {most}",
        lambda e: "price" in e and "size" in e and e["price"] + e["size"] <= most,
    )


KINDS = (
    *(number_range, integer, symbol, symbols, short_prefix, long_prefix, suffix, part, whole),
    *(not_prefix, either_prefix, colour, flag, time, missing, present),
    *(circle, triangle, coordinate, total),
)


def check(engine: Engine, wanted: dict[int, Holds], events: list[dict[str, Any]]) -> int:
    """Compare every call with the plain conditions; return the number of matches."""
    expected = [[name for name, holds in wanted.items() if holds(one)] for one in events]
    assert [sorted(ids) for ids in engine.match_many(events)] == expected
    assert [sorted(engine.match(one)) for one in events] == expected
    assert [sorted(ids) for ids in engine.match_each(events)] == expected  # type: ignore[arg-type]
    assert [sorted(engine.match_ids(one).tolist()) for one in events[:9]] == expected[:9]
    assert engine.count_many(events).tolist() == [len(ids) for ids in expected]
    assert [engine.count(one) for one in events[:9]] == [len(ids) for ids in expected[:9]]
    return sum(map(len, expected))


@pytest.mark.parametrize("count", [1, 40, 1500])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_set_of_one_kind(kind: Callable[[random.Random], Made], count: int) -> None:
    r = random.Random(count)
    made = [kind(r) for _ in range(count + 2)]
    wanted = {number: holds for number, (_, holds) in enumerate(made[:count])}
    engine = Engine(SPACE)
    engine.subscribe_many(
        [{"id": number, "filter": filter_} for number, (filter_, _) in enumerate(made[:count])]
    )
    engine.wait_for_rebuild()
    events = [event(r) for _ in range(50)]
    matched = check(engine, wanted, events)
    for number in range(count, count + 2):
        engine.subscribe(number, made[number][0])
        wanted[number] = made[number][1]
    for number in range(0, count, 3):
        engine.unsubscribe(number)
        del wanted[number]
    check(engine, wanted, events)
    assert matched or count == 1
