"""Values whose own methods raise, or that no attribute takes: each fails alone, with a reason."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rangecast import (
    Boolean,
    Category,
    Engine,
    Hierarchy,
    Integer,
    Number,
    RejectedRowError,
    Space,
    String,
    Timestamp,
)
from rangecast.errors import RangecastError, SpaceError


def _raise(*_: Any) -> Any:
    raise RuntimeError("none of your business")


class Hostile:
    """Nothing can be asked of it."""

    __eq__ = __ne__ = __hash__ = __str__ = __repr__ = __float__ = __bool__ = __len__ = _raise
    __getattr__ = _raise


class HostileInteger(int):
    """An integer that can't be read as one."""

    __float__ = __index__ = __str__ = __repr__ = _raise


class HostileText(str):
    """A text that can't be looked at."""

    __slots__ = ()
    strip = __str__ = __hash__ = _raise


class HostileMapping(Mapping[str, Any]):
    """An event with a key that it doesn't give the value of."""

    __getitem__ = _raise

    def __iter__(self) -> Iterator[str]:
        return iter(["n"])

    def __len__(self) -> int:
        return 1


class Ending(HostileMapping):
    """An event that ends the iteration around it."""

    def __getitem__(self, name: str) -> Any:
        raise StopIteration


VALUES: dict[str, Any] = {
    "hostile": Hostile(),
    "hostile integer": HostileInteger(5),
    "hostile text": HostileText("x"),
    "class": Hostile,
    "long integer": 10**5000,
    "signalling NaN": Decimal("sNaN"),
    "large decimal": Decimal("1e999999"),
    "complex": 1 + 2j,
    "bytes": b"x",
    "surrogate": "\ud800",
    "NaT": pd.NaT,
    "NA": pd.NA,
    "array": np.array([1, 2]),
    "list": [1, 2],
    "set": {1, 2},
    "dict": {"a": 1},
    "dict of numbers": {1: 2},
    "time": dt.time(1),
    "duration": dt.timedelta(1),
    "infinity": float("inf"),
    "object": object(),
    "function": print,
    "not a time": np.datetime64("NaT"),
    "ellipsis": ...,
    "view": memoryview(b"a"),
    "last moment": dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14))),
}
SPACE = Space(
    [
        Number("n"),
        Integer("i"),
        Timestamp("t"),
        Boolean("b"),
        Category("c", ["a"]),
        String("s"),
        Hierarchy("h", {"EU": ["de"]}),
    ]
)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_an_event_that_can_not_be_read_fails_alone(value: Any) -> None:
    engine = Engine(SPACE)
    engine.subscribe("all", "true")
    for name in SPACE.names:
        first, found, last = engine.match_each([{}, {name: value}, {}])
        assert first == last == ["all"]
        assert found == ["all"] or isinstance(found, RangecastError)


@pytest.mark.parametrize(
    "event",
    [Hostile(), 5, None, "x", [1], {1: 2}, {Hostile: 1}, HostileMapping(), Ending()],
    ids=range(9),
)
@pytest.mark.parametrize("space", [SPACE, Space([Number("n", source="$.a.n")])], ids=["", "source"])
def test_what_is_no_event_fails_alone(event: Any, space: Space) -> None:
    engine = Engine(space)
    engine.subscribe("all", "true")
    first, found, last = engine.match_each([{}, event, {}])
    assert first == last == ["all"]
    assert isinstance(found, RangecastError)


def test_the_error_names_what_was_raised() -> None:
    engine = Engine(SPACE)
    (error,) = engine.match_each([{"n": Hostile()}])
    assert str(error) == "the event can't be decoded: RuntimeError: none of your business"


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_space_is_inferred_around_a_column_that_can_not_be_read(value: Any) -> None:
    for rows in (
        [{"x": value, "ok": 1.5}],
        [{"x": value, "ok": 1.5}, {"x": 1, "ok": 2.5}],
        [{"x": "a", "ok": 1.5}, {"x": value, "ok": 2.5}],
        {"x": [value, value], "ok": [1.5, 2.5]},
        [{"x": {"y": value}, "ok": 1.5}],
    ):
        space = Space.infer(rows)
        assert space["ok"] == Number("ok")
        assert space.guesses


def test_a_column_whose_name_is_no_text_is_left_out() -> None:
    frame = pd.DataFrame({"price": [1.5, 2.5], 7: [1, 2], ("a", "b"): [3, 4]})
    space = Space.infer(frame)
    assert space == Space([Number("price")])
    assert space.guesses["7"] == "left out, its name isn't a string"
    with pytest.raises(SpaceError, match=r"no column can be an attribute\n  7: left out, its name"):
        Space.infer(frame[[7]])


def test_the_error_of_a_lone_surrogate_can_be_printed():
    engine = Engine(Space([Number("price")]))
    for row in ({"id": "\ud800", "price": 1}, {"id": "a", "price": "\ud800"}):
        with pytest.raises(RejectedRowError) as raised:
            engine.match_many([row])
        assert r"given: \ud800" in str(raised.value).encode().decode()
