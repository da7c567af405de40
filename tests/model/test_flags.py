"""Options that are true or false take nothing else, and lists of ids are no texts: everywhere."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from rangecast import (
    AsyncClient,
    AsyncEngine,
    Client,
    Engine,
    EventFile,
    Filter,
    Notifier,
    Number,
    Space,
    Timestamp,
    Tracker,
    encode_events,
    read_subscriptions,
)
from rangecast.cover import CoverSet
from rangecast.errors import UsageError
from rangecast.merge import ExactSummary, Links, SplitSummary, Summary
from rangecast.model.validation.flags import flag
from rangecast.notify import Board, BoxInterest, Interest, Servers
from rangecast.overlay import ZoneBroker, ZoneSimulation
from rangecast.overlay.zones.geometry import Box
from tests.support.server.served import Served

SPACE = Space([Number("a"), Number("b")])
FRAME = Box((0.0, 0.0), (1.0, 1.0))
TRACKED = Engine(Space([Number("a"), Timestamp("at")]))
MOVED = {"key": "k", "a": 1, "at": "2026-01-31T09:00Z"}
OBJECTS = {"id": [1], "position": [1.0], "value": [1.0]}


def engine() -> Engine:
    made = Engine(SPACE)
    made.subscribe("s", "a < 5")
    return made


def tracker() -> Tracker:
    return Tracker(TRACKED, key="key", time="at")


def awaited(url: str, call: Callable[[AsyncClient], Any]) -> Any:
    async def run() -> Any:
        async with AsyncClient(url, space="plane") as client:
            return await call(client)

    return asyncio.run(run())


LOCAL: dict[str, Callable[[Any, Path], Any]] = {
    "Engine.rank ignore_unknown": lambda f, _: engine().rank({"a": 1}, ignore_unknown=f),
    "Engine.rank relaxed": lambda f, _: engine().rank({"a": 1}, relaxed=f),
    "Engine.rank_many ignore_unknown": lambda f, _: engine().rank_many(
        [{"a": 1}], ignore_unknown=f
    ),
    "Engine.rank_many relaxed": lambda f, _: engine().rank_many([{"a": 1}], relaxed=f),
    "Engine.rank_points relaxed": lambda f, _: engine().rank_points(np.ones((1, 2)), relaxed=f),
    "Engine.count ignore_unknown": lambda f, _: engine().count({"a": 1}, ignore_unknown=f),
    "Engine.count_many ignore_unknown": lambda f, _: engine().count_many([], ignore_unknown=f),
    "Engine.match_ids ignore_unknown": lambda f, _: engine().match_ids({"a": 1}, ignore_unknown=f),
    "Engine.match ignore_unknown": lambda f, _: engine().match({"a": 1}, ignore_unknown=f),
    "Engine.match_each ignore_unknown": lambda f, _: engine().match_each([], ignore_unknown=f),
    "Engine.match_many ignore_unknown": lambda f, _: engine().match_many([], ignore_unknown=f),
    "Engine.save overwrite": lambda f, path: engine().save(path, overwrite=f),
    "Engine.why ignore_unknown": lambda f, _: engine().why({"a": 1}, "s", ignore_unknown=f),
    "Engine.why_not ignore_unknown": lambda f, _: engine().why_not({"a": 1}, ignore_unknown=f),
    "EventFile.__init__ ignore_unknown": lambda f, _: EventFile(
        "none.csv", SPACE, ignore_unknown=f
    ),
    "AsyncEngine.__init__ ignore_unknown": lambda f, _: AsyncEngine(engine(), ignore_unknown=f),
    "Space.infer bounds": lambda f, _: Space.infer([{"a": 1}], bounds=f),
    "Space.save overwrite": lambda f, path: SPACE.save(path / "space.toml", overwrite=f),
    "encode_events ignore_unknown": lambda f, _: encode_events([], SPACE, ignore_unknown=f),
    "read_subscriptions ignore_unknown": lambda f, _: read_subscriptions(
        "none.csv", SPACE, ignore_unknown=f
    ),
    "CoverSet.save overwrite": lambda f, path: CoverSet(SPACE).save(path, overwrite=f),
    "ExactSummary.__init__ merging": lambda f, _: ExactSummary(SPACE, merging=f),
    "ExactSummary.save overwrite": lambda f, path: ExactSummary(SPACE).save(path, overwrite=f),
    "Links.save overwrite": lambda f, path: Links(SPACE).save(path, overwrite=f),
    "SplitSummary.save overwrite": lambda f, path: SplitSummary(SPACE, subsets=[["a"]]).save(
        path, overwrite=f
    ),
    "Summary.save overwrite": lambda f, path: Summary(SPACE).save(path, overwrite=f),
    "Board.__init__ descending": lambda f, _: Board(1, descending=f),
    "Board.save overwrite": lambda f, path: Board(1).save(path, overwrite=f),
    "BoxInterest.__init__ descending": lambda f, _: BoxInterest(
        Filter.parse("a < 5", SPACE), 1, descending=f
    ),
    "Interest.__init__ descending": lambda f, _: Interest(0, 1, 1, descending=f),
    "Servers.__init__ descending": lambda f, _: Servers(1, 1, objects=OBJECTS, descending=f),
    "Notifier.set_consumer has_both_ends": lambda f, _: Notifier().set_consumer(
        "s", "c", has_both_ends=f
    ),
    "Tracker.__init__ inside": lambda f, _: Tracker(TRACKED, key="key", time="at", inside=f),
    "Tracker.update ignore_unknown": lambda f, _: tracker().update(MOVED, ignore_unknown=f),
    "Tracker.update_many ignore_unknown": lambda f, _: tracker().update_many(
        [MOVED], ignore_unknown=f
    ),
    "Tracker.save overwrite": lambda f, path: tracker().save(path, overwrite=f),
    "ZoneBroker.__init__ by_load": lambda f, _: ZoneBroker(1, FRAME, by_load=f),
    "ZoneSimulation.__init__ by_load": lambda f, _: ZoneSimulation(Board(1), FRAME, by_load=f),
}
REMOTE: dict[str, Callable[[Any, Any], Any]] = {
    "rank relaxed": lambda f, c: c.rank({"a": 1}, relaxed=f),
    "rank ignore_unknown": lambda f, c: c.rank({"a": 1}, ignore_unknown=f),
    "match ignore_unknown": lambda f, c: c.match({"a": 1}, ignore_unknown=f),
    "match_each ignore_unknown": lambda f, c: c.match_each([{"a": 1}], ignore_unknown=f),
    "count ignore_unknown": lambda f, c: c.count({"a": 1}, ignore_unknown=f),
    "count_many ignore_unknown": lambda f, c: c.count_many([{"a": 1}], ignore_unknown=f),
    "rank_many relaxed": lambda f, c: c.rank_many([{"a": 1}], relaxed=f),
    "rank_many ignore_unknown": lambda f, c: c.rank_many([{"a": 1}], ignore_unknown=f),
    "why ignore_unknown": lambda f, c: c.why({"a": 1}, "s", ignore_unknown=f),
    "why_not ignore_unknown": lambda f, c: c.why_not({"a": 1}, ignore_unknown=f),
    "match_many ignore_unknown": lambda f, c: c.match_many([{"a": 1}], ignore_unknown=f),
    "publish matches": lambda f, c: c.publish([{"a": 1}], matches=f),
    "publish ignore_unknown": lambda f, c: c.publish([{"a": 1}], ignore_unknown=f),
    "put_board descending": lambda f, c: c.put_board("b", 1, descending=f),
    "subscribe create_consumer": lambda f, c: c.subscribe("s", "true", create_consumer=f),
    "subscribe_many create_consumer": lambda f, c: c.subscribe_many([], create_consumer=f),
    "upsert create_consumer": lambda f, c: c.upsert("s", "true", create_consumer=f),
    "upsert_many create_consumer": lambda f, c: c.upsert_many([], create_consumer=f),
}
DATA = {
    *("BoxMessages", "Messages", "LinkDown", "Settings", "Broker"),  # what brokers and boards say
    *("Boolean", "Category", "Hierarchy", "Integer", "Location", "Number", "Point", "String"),
    *("Arithmetic", "Text", "Timestamp"),
}
"""Classes whose boolean arguments are fields of their data, or of coordinates."""
MODULES = ("rangecast", *(f"rangecast.{one}" for one in ("cover", "merge", "notify", "overlay")))
MEANT = [
    ("no", "str 'no'"),
    (0, "int 0"),
    (1, "int 1"),
    (None, "NoneType None"),
    ([], r"list \[\]"),
]


def public_flags() -> Iterator[tuple[str, str]]:
    """Yield every boolean argument of the public interface, but for Spark's: class and rest."""
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            public = getattr(module, name)
            calls = {name: public} if inspect.isfunction(public) else {}
            if inspect.isclass(public):
                members = inspect.getmembers(public, callable)
                calls = {f"{name}.{one}": of for one, of in members if one[0] != "_"}
                calls[f"{name}.__init__"] = public.__init__
            for path, call in calls.items():
                try:
                    arguments = inspect.signature(call).parameters.values()
                except (TypeError, ValueError):
                    continue
                for one in arguments:
                    if str(one.annotation) in ("bool", "bool | None"):
                        yield name, f"{path} {one.name}"


def test_every_flag_is_in_the_table() -> None:
    clients = ("Client", "AsyncClient")
    found = {rest for name, rest in public_flags() if name not in (*DATA, *clients)}
    assert found == set(LOCAL)
    for client in clients:
        found = {rest.removeprefix(f"{client}.") for name, rest in public_flags() if name == client}
        assert found == set(REMOTE)


@pytest.mark.parametrize("name", LOCAL)
def test_a_flag_takes_true_or_false(name: str, tmp_path: Path) -> None:
    for given, shown in MEANT:
        with pytest.raises(
            UsageError, match=rf"{name.split()[1]} must be True or False\n.*{shown}\n"
        ):
            LOCAL[name](given, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Served(spaces={"plane": SPACE})
    yield served.url
    served.stop()


@pytest.mark.parametrize("name", REMOTE)
def test_a_flag_of_a_client_takes_true_or_false(name: str, url: str) -> None:
    says = f"{name.split()[1]} must be True or False"
    with Client(url, space="plane") as client, pytest.raises(UsageError, match=says):
        REMOTE[name]("no", client)
    with pytest.raises(UsageError, match=says):
        awaited(url, lambda client: REMOTE[name]("no", client))


def test_a_flag_in_json_takes_true_or_false(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as http:
        answer = http.put("/v1/boards/b", json={"k": 1, "descending": "no"})
        assert answer.status_code == 422
        assert "descending" in answer.text
        assert http.get("/v1/boards/b").status_code == 404


def test_true_and_false_of_numpy_are_flags() -> None:
    assert flag("x", np.True_) is True
    assert flag("x", np.False_) is False


SETS: dict[str, Callable[[], Any]] = {
    "Engine": engine,
    "CoverSet": lambda: CoverSet(SPACE),
    "Summary": lambda: Summary(SPACE),
    "SplitSummary": lambda: SplitSummary(SPACE, subsets=[["a"]]),
    "ExactSummary": lambda: ExactSummary(SPACE),
    "Board": lambda: Board(1),
    "Board over a space": lambda: Board(1, space=SPACE),
    "Servers": lambda: Servers(1, 1, objects=OBJECTS),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("ids", ["ab", b"ab", 5, None])
def test_a_list_of_ids_is_no_text(name: str, ids: Any) -> None:
    made = SETS[name]()
    where = (0, 1) if name in ("Board", "Servers") else ("a < 5",)
    if name == "Servers":
        made.subscribe_many({"id": ["a", "b"], "position_lo": [0, 0], "position_hi": [1, 1]})
    else:
        for one in "ab":
            made.subscribe(one, *where)
    with pytest.raises(
        UsageError, match=r"expected a list of (subscription|interest)s\n.*\n.*hint"
    ):
        made.unsubscribe_many(ids)
    made.unsubscribe_many(["a", "b"])  # both are still there
    if name != "Servers":
        assert "a" not in made


def test_links_take_no_text_for_a_list_of_ids() -> None:
    links = Links(SPACE)
    links.connect("l")
    links.subscribe_many("l", [{"id": "a", "filter": "a < 5"}])
    with pytest.raises(UsageError, match="expected a list of subscriptions"):
        links.unsubscribe_many("l", "a")
