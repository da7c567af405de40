import gc

import pytest
from numba.core.registry import CPUDispatcher

from rangecast import Engine, Location, Number, Rule, Space, Text, Timestamp, Tracker
from rangecast.cli.commands.networks.precompile import Verb, compile_for
from rangecast.notify import Board

COMMANDS = {
    Verb.MATCH: ["match", "events.parquet", "subscriptions.parquet"],
    Verb.RANK: ["rank", "events.parquet", "subscriptions.parquet", "-k", "3"],
    Verb.COVER: ["cover", "subscriptions.parquet"],
    Verb.MERGE: ["merge", "subscriptions.parquet", "--max-ranges", "50"],
}


@pytest.fixture(autouse=True)
def thawed():
    """Find kernels that were loaded with the tests, too (`tests/conftest.py`)."""
    gc.unfreeze()
    yield
    gc.freeze()


def signatures():
    """All signatures of our kernels that are ready to be called."""
    return {
        (kernel.py_func.__module__, kernel.py_func.__qualname__, signature)
        for kernel in gc.get_objects()
        # By its type: to ask a dead proxy, which a busy process may hold, raises an error.
        if type(kernel) is CPUDispatcher and kernel.py_func.__module__.startswith("rangecast.")
        for signature in kernel.overloads
    }


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_needs_no_other_kernels_than_those_compiled_ahead(cli, tmp_path, verb):
    compile_for(verb)
    ahead = signatures()
    made = tmp_path / "market"
    cli("generate", "market", "-o", made, "--subscriptions", "4000", "--events", "1000")
    name, *files = COMMANDS[verb]
    files = [made / one if one.endswith("parquet") else one for one in files]
    cli(name, *files, "--space", made / "space.toml", "-o", tmp_path / "out.parquet")
    assert signatures() - ahead == set()


def test_texts_need_no_other_kernels_than_those_compiled_ahead():
    compile_for(Verb.MATCH)
    ahead = signatures()
    engine = Engine(Space([Text("title"), Text("body"), Number("price")]))
    filters = [f"title contains 'x{n}' ignore case and price < {n}" for n in range(700)]
    filters += [f"words(body) has any ('w{n}', 'v')" for n in range(50)]
    engine.subscribe_many({"id": list(range(750)), "filter": filters})
    event = {"title": "an x7 é", "body": "w3", "price": 2}
    for turn in range(70):
        found = engine.match_many([event] * 64)
        if turn in (0, 69):
            assert engine.match(event) == list(found[0]) == [7, 703]
            assert engine.count(event) == 2
    engine.unsubscribe(703)
    assert engine.match(event) == [7]
    assert signatures() - ahead == set()


PLANE = Space([Number("km"), Number("m2")])
BOARDS = {
    "line": (None, None, [0, 5]),
    "space": (PLANE, None, ["km <= 5 and m2 <= 80"]),
    "upper": (PLANE, "m2", ["km <= 5 and m2 <= 80"]),
}


@pytest.mark.parametrize("kind", BOARDS)
def test_a_board_needs_no_other_kernels_than_those_compiled_ahead(kind):
    compile_for(Verb.NOTIFY)
    ahead = signatures()
    space, upper, where = BOARDS[kind]
    board = Board(2, space=space, upper_bound_attribute=upper, descending=True)
    board.subscribe("near", *where)
    places = [{"position": n} if space is None else {"km": n, "m2": 10 * n} for n in range(30)]
    board.update_many([{"id": f"o{n}", **place, "value": n} for n, place in enumerate(places)])
    board.update_batch([{"id": "o1", "value": 40}, {"id": "o2", **places[9], "value": 3}])
    board.set_value("o3", 7.0)
    board.unsubscribe("near")
    assert signatures() - ahead == set()


@pytest.mark.parametrize("rule", [Rule(), Rule(for_="2 s", cross="1 min")])
def test_a_tracker_needs_no_other_kernels_than_those_compiled_ahead(rule: Rule):
    compile_for(Verb.TRACK)
    ahead = signatures()
    engine = Engine(Space([Timestamp("at", epoch="s"), Location("position"), Number("speed")]))
    engine.subscribe("depot", "within(position, circle(13.4, 52.5, 500 m))")
    engine.subscribe("zone", "within(position, 'POLYGON ((13 52, 14 52, 14 53, 13 52))')")
    tracker = Tracker(engine, key="truck", time="at", rule=rule)
    places = [(13.3, 52.5), (13.5, 52.5), (13.4, 52.5), (15, 50)]
    for at, (longitude, latitude) in enumerate(places):
        place = {"longitude": longitude, "latitude": latitude, "speed": 3}
        tracker.update({"truck": "t1", "at": at, **place})
        tracker.update_many([{"truck": "t2", "at": at, **place}])
    tracker.flush()
    assert signatures() - ahead == set()


@pytest.mark.process
def test_kernels_are_compiled_in_processes_of_their_own(cli):
    for processes in ("1", "2"):
        lines = cli("precompile", "match", "rank", "--processes", processes).stderr.splitlines()
        assert sorted(line.partition(":")[0] for line in lines[:-1]) == ["match", "rank"]
        assert lines[-1].startswith("compiled kernels are cached in ")
