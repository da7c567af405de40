"""One table of calls over Engine, Client, AsyncClient and HTTP: the same results and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rangecast.errors import (
    FilterError,
    RangecastError,
    RejectedRowError,
)
from tests.support.parity import (
    KINDS,
    ROWS,
    ByAsyncClient,
    ByClient,
    ByEngine,
    ByHttp,
    _as_json,
    plain,
)
from tests.support.parity_cases import CASES, EVENT, MANY, PYTHON_ALONE, Case, wanted
from tests.support.server.served import Served


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    served = Served(spaces={})
    yield served.url
    served.stop()


@pytest.fixture(scope="module")
def fresh(server: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Makes the interfaces, each over a set of its own."""
    made: list[Any] = []

    def make() -> dict[str, Any]:
        found: dict[str, Any] = {"Engine": ByEngine()}
        for kind in (ByClient, ByAsyncClient, ByHttp):
            one = kind(server, f"space-{len(made)}")
            made.append(one)
            found[kind.__name__.removeprefix("By")] = one
        for one in found.values():
            rows = ROWS
            if isinstance(one, ByHttp):
                rows = [_as_json(row) for row in ROWS]
            assert one.call("subscribe_many", rows) == 3
        return found

    yield make
    for one in made:
        one.close()


def outcome(one: Any, given: Case) -> tuple[Any, Any]:
    """Return the type and the value of a result; of an error its class."""
    try:
        found = one.call(given.method, *given.args, **given.options)
    except RangecastError as error:
        kinds = [kind for kind in KINDS if isinstance(error, kind)]
        kind = RejectedRowError if isinstance(error, RejectedRowError) else type(error)
        return ("error", kind) if kinds or isinstance(error, RejectedRowError) else ("other", error)
    return type(found), plain(found)


@pytest.fixture(scope="module")
def unchanged(fresh: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The interfaces for calls that change nothing."""
    return fresh()


@pytest.mark.parametrize("name", CASES)
def test_a_call_is_the_same_on_every_interface(
    fresh: Callable[[], dict[str, Any]], unchanged: dict[str, Any], name: str
) -> None:
    given = CASES[name]
    found = unchanged if given.after is None else fresh()
    expected = {row["id"]: found["Engine"].call("get", row["id"]) for row in ROWS}
    for one, after in (given.after or {}).items():
        expected[one] = after
    kinds = {}
    for interface, one in found.items():
        if interface == "Http" and name in PYTHON_ALONE:
            continue
        kinds[interface], result = outcome(one, given)
        is_error = isinstance(given.result, type) and issubclass(given.result, RangecastError)
        assert (kinds[interface] == "error") == is_error, (interface, result)
        assert result == given.result, interface
        members = [each for each in expected.values() if each is not None]
        assert one.members() == members, interface
    if given.method != "match_each":
        assert kinds["Client"] == kinds["AsyncClient"] == kinds["Engine"]


def test_results_of_many_have_the_same_tables(unchanged: dict[str, Any]) -> None:
    events = [{"id": f"e{at}", **event} for at, event in enumerate(MANY)]
    for method, more in (("match_many", ()), ("rank_many", (2,))):
        for given in (MANY, events):
            tables = [
                sorted(unchanged[one].call(method, given, *more).table().to_pylist(), key=str)
                for one in ("Engine", "Client", "AsyncClient")
            ]
            assert tables[0] == tables[1] == tables[2]
    keeping = [{"name": f"e{at}", "note": at, **event} for at, event in enumerate(MANY)]
    for method, more in (("match_many", ()), ("rank_many", (2,))):
        tables = [
            unchanged[one].call(method, keeping, *more, id="name", keep="note").table()
            for one in ("Engine", "Client", "AsyncClient")
        ]
        assert tables[0].column_names == tables[1].column_names
        rows = [sorted(one.to_pylist(), key=str) for one in tables]
        assert rows[0] == rows[1] == rows[2]
    whys = [unchanged[one].call("why", EVENT, "c") for one in ("Engine", "Client", "AsyncClient")]
    assert whys[0] == whys[1] == whys[2]
    boxes = [unchanged[one].call("select", ["a", "c"])[0] for one in ("Engine", "Client")]
    assert [one.scores.tolist() for one in boxes] == [[5.0, 3.0]] * 2
    assert [one.weights.tolist() for one in boxes] == [[[2.0, 1.0, 1.0], [1.0, 1.0, 1.0]]] * 2
    for one in ("Client", "AsyncClient"):
        assert unchanged[one].call("explain").startswith("<Engine: 3 subscriptions")


def test_files_are_read_alike(
    fresh: Callable[[], dict[str, Any]], unchanged: dict[str, Any], tmp_path: Any
) -> None:
    (tmp_path / "events.csv").write_text("price,sector\n4,tech\n15,tech\n50,\n")
    for one in ("Engine", "Client", "AsyncClient"):
        found = list(unchanged[one].call("match_many", tmp_path / "events.csv"))
        assert found == [["b", "a", "c"], ["a"], []], one
    (tmp_path / "set.csv").write_text("id,filter\n3,price < 10\n2,price < 20\n")
    for one in ("Engine", "Client", "AsyncClient"):
        made = fresh()[one]
        made.call("unsubscribe_many", ["a", "b", "c"])
        if one == "Engine":  # the kind of ids is that of its first member
            made = ByEngine()
        assert made.call("subscribe_many", tmp_path / "set.csv") == 2
        assert [each.id for each in made.members()] == [3, 2], one


def test_ids_come_back_as_they_were_given(fresh: Callable[[], dict[str, Any]]) -> None:
    """Integers stay integers, and what was replaced keeps its place."""
    found = fresh()
    for name, one in found.items():
        made: Any = one
        if name == "Engine":
            made = ByEngine()
        else:
            made.call("unsubscribe_many", ["a", "b", "c"])
        if name == "Http":
            made.subscribe(30, "price < 10", id=30)
            made.subscribe_many([{"id": 7, "filter": "price < 10"}])
            made.subscribe_many([{"id": 5, "filter": "price < 1", "weights": {"size": 2}}])
        else:
            made.call("subscribe", 30, "price < 10")
            made.call("subscribe_many", [{"id": 7, "filter": "price < 10"}])
            made.call("subscribe", np.int64(5), "price < 1", weights={"size": 2})
        made.call("replace", 30, "price < 11")
        assert [each.id for each in made.members()] == [30, 7, 5], name
        assert made.call("match", {"price": 0.5}) == [30, 7, 5], name
        assert made.call("rank", {"price": 5.0}, 2) == [(30, 0.0), (7, 0.0)], name
        assert made.call("get", 7) == wanted(7, "price < 10"), name
        assert made.call("unsubscribe_many", [7, 30]) == 2, name
        assert [each.id for each in made.members()] == [5], name


def test_an_error_of_a_filter_is_whole(unchanged: dict[str, Any]) -> None:
    texts = []
    for one in ("Engine", "Client", "AsyncClient"):
        with pytest.raises(FilterError) as caught:
            unchanged[one].call("subscribe", "d", "price < 1 and prise < 3")
        error = caught.value
        texts.append((str(error), error.reason, error.hint, error.span))
    assert texts[0] == texts[1] == texts[2]
    assert "^^^^^" in texts[0][0]
