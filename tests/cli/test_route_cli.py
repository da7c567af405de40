"""`rangecast route`: deliveries are what `match` writes, and faults are hunted by seed."""

import json
from typing import get_args

import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

from rangecast import Engine
from rangecast.cli.commands.networks import route
from rangecast.cli.main import app
from rangecast.model.encoding.events import encode_events
from rangecast.overlay.interest.strategies import STRATEGIES
from rangecast.overlay.networks.network import Network
from rangecast.overlay.networks.tree import ELEVEN, SHAPES, neighbours, tree_of
from rangecast.workloads import generate


def run(*given, code=0):
    done = CliRunner().invoke(app, [*map(str, given)])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("route")
    made = generate("market", seed=3, subscriptions=60, events=80)
    for name, table in made.tables.items():
        pyarrow.csv.write_csv(table, folder / f"{name}.csv")
    made.space.save(folder / "space.toml")
    three = folder / "events.csv", folder / "subscriptions.csv", "--space", folder / "space.toml"
    run("match", *three, "-o", folder / "matches.csv")
    return folder, three


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deliveries_are_the_rows_of_match(files, strategy):
    folder, three = files
    where = ("--brokers", 6, "--strategy", strategy, "--seed", 2, "--max-ranges", 20)
    done = run("route", "run", *three, *where, "-o", folder / f"{strategy}.csv", "--json")
    assert (folder / f"{strategy}.csv").read_bytes() == (folder / "matches.csv").read_bytes()
    facts = json.loads(done.stdout)
    assert facts["control_messages"] >= facts["table_items"] > 0
    assert facts["false_forwards"] == 0 or strategy in ("merging", "both")


def test_commands_are_played_among_events(files, tmp_path):
    _, three = files
    made = generate("market", seed=3, subscriptions=60, events=80)
    engine = Engine(made.space)
    engine.subscribe_many(made.tables["subscriptions"])
    ids = made.tables["subscriptions"]["id"].to_pylist()
    commands = [
        (0, "unsubscribe", ids[0], ""),
        (20, "replace", ids[1], "price > 0"),
        (20, "subscribe", ids[0], "price > 0 and price < 1e9"),
        (60, "unsubscribe", ids[1], ""),
    ]
    columns = zip(*commands, strict=True)
    table = pa.table(dict(zip(("before", "command", "id", "filter"), columns, strict=True)))
    pyarrow.csv.write_csv(table, tmp_path / "commands.csv")
    given = ("--brokers", 5, "--commands", tmp_path / "commands.csv", "-o", tmp_path / "out.csv")
    run("route", "run", *three, *given, "--plot", tmp_path / "tree.svg")
    events = encode_events(made.tables["events"], made.space)
    expected = []
    for row, point in enumerate(events.points):
        for before, command, one, text in commands:
            if before == row and command == "unsubscribe":
                engine.unsubscribe(one)
            elif before == row:
                getattr(engine, command)(one, text)
        found = engine.match_points(point[None])[0]
        expected += [(events.ids[row].as_py(), one) for one in found]
    got = pyarrow.csv.read_csv(tmp_path / "out.csv").to_pylist()
    assert [(row["event"], row["subscription"]) for row in got] == expected
    assert "<svg" in (tmp_path / "tree.svg").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("command,id\nunsubscribe,S1\n", "before, command and id"),
        ("before,command,id\n0,forget,S1\n", "subscribe, unsubscribe, replace"),
        ("before,command,id\n999,unsubscribe,S1\n", "before must be 0 to 80"),
        ("before,command,id\n0,unsubscribe,nobody\n", "doesn't exist"),
    ],
)
def test_wrong_commands_are_rejected(files, tmp_path, text, expected):
    (tmp_path / "commands.csv").write_text(text)
    done = CliRunner().invoke(
        app, [*map(str, ("route", "run", *files[1], "--commands", tmp_path / "commands.csv"))]
    )
    assert done.exception is not None
    assert expected in str(done.exception)


def test_files_or_a_workload_are_needed():
    done = CliRunner().invoke(app, ["route", "run"])
    assert "EVENTS, SUBSCRIPTIONS and --space, or --workload" in str(done.exception)


def test_simulate_sums_up_seeds_and_tells_one(tmp_path):
    facts = json.loads(run("route", "simulate", "--seeds", 3, "--processes", 1, "--json").stdout)
    assert facts["seeds"] == 3
    assert facts["broken"] == []
    told = run("route", "simulate", "--seed", 1, "--trace").stdout
    assert "b0 starts, incarnation 1" in told
    assert "faults end" in told


def test_help_lists_what_there_is():
    assert [*get_args(route.Strategy)] == [*STRATEGIES]
    assert [*get_args(route.Shape)] == [*SHAPES]


def hops_from(start, near):
    """Return how many links lie between a broker and each one."""
    hops = {start: 0}
    for one in (order := [start]):
        for other in near[one]:
            if other not in hops:
                hops[other] = hops[one] + 1
                order.append(other)
    return [hops[one] for one in range(len(near))]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_joins_all_brokers(shape):
    tree = tree_of(shape, 12, 5)
    assert len(tree) == 11
    hops = hops_from(0, neighbours(tree, 12))
    assert min(hops) == 0
    assert max(hops) == {"chain": 11, "star": 1, "balanced": 3}.get(shape, max(hops))


def test_messages_that_were_needed_are_the_links_of_the_smallest_tree():
    space = generate("market", subscriptions=1, events=1).space
    network = Network(space, ELEVEN, 11)
    near = neighbours(ELEVEN, 11)
    for origin in range(11):
        for one in range(11):
            assert network._links_between(origin, {one}) == hops_from(origin, near)[one]
    assert network._links_between(4, {10, 5}) == 6
    assert network._links_between(6, {7}) == 2
    assert network._links_between(0, set()) == 0
