"""Streams of commands: `cover --commands`, `merge --commands`, `filter`, and what reads them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.cover import CoverSet
from rangecast.errors import UsageError
from rangecast.match.scan import Scan
from rangecast.merge import RangeForward, Ranges, Summary
from rangecast.model.commands import as_commands
from rangecast.model.encoding.events import encode_events
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.io.writer import write_table
from rangecast.workloads import generate


def history(seed=5, ids="s{}".format):
    """Subscriptions to begin with, and commands of all three kinds, over the market's space."""
    rng = np.random.default_rng(seed)
    made = generate("market", seed=seed, subscriptions=260, events=300)
    filters = made.tables["subscriptions"]["filter"].to_pylist()
    first = {"id": [ids(i) for i in range(60)], "filter": filters[:60]}
    live, commands = list(range(60)), []
    for number in range(60, 260):
        kind = ("subscribe", "subscribe", "unsubscribe", "replace")[rng.integers(4)]
        if kind == "subscribe":
            # Some come back under an id that left.
            gone = [one for one in range(number) if one not in live]
            who = int(rng.choice(gone)) if gone and rng.random() < 0.3 else number
            live.append(who)
        else:
            who = int(rng.choice(live))
            if kind == "unsubscribe":
                live.remove(who)
        wanted = None if kind == "unsubscribe" else filters[number]
        if wanted is not None and rng.random() < 0.2:
            wanted = filters[int(rng.integers(60))]
        commands.append({"command": kind, "id": ids(who), "filter": wanted})
    return made, pa.table(first), pa.Table.from_pylist(commands)


def sets_after(first, commands):
    """Yield the live subscriptions before all commands, and after each."""
    live = dict(zip(first["id"].to_pylist(), first["filter"].to_pylist(), strict=True))
    yield dict(live)
    for row in commands.to_pylist():
        if row["command"] == "unsubscribe":
            del live[row["id"]]
        else:
            live[row["id"]] = row["filter"]
        yield dict(live)


def wanted_by(live, space, points):
    """Return which events somebody wants, by the oracle."""
    table = pa.table({"id": [*live], "filter": pa.array(live.values(), pa.string())})
    found = np.zeros(len(points), np.bool_)
    for first, piece in Scan(encode_subscriptions(table, space)).stream(points):
        counts = np.diff(piece.offsets)
        found[first : first + len(counts)] |= counts > 0
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    made, first, commands = history()
    made.space.save(folder / "space.toml")
    write_table(first, folder / "subscriptions.csv")
    write_table(commands, folder / "commands.csv")
    write_table(made.tables["events"], folder / "events.parquet")
    return folder, made, first, commands


SPACE = ("--space", "space.toml")
COMMANDS = ("--commands", "commands.csv")


@pytest.mark.parametrize(
    "options",
    [(), ("-k", 2, "--index", "scan"), ("-k", "all", "--index", "kdtree"), ("-k", "poset")],
)
def test_cover_writes_what_the_set_says_of_each_command(cli, data, options):
    folder, made, first, commands = data
    cover = CoverSet(made.space, index="scan")
    cover.subscribe_many(first)
    expected = []
    for number, row in enumerate(commands.to_pylist()):
        given = [row["id"]] if row["command"] == "unsubscribe" else [row["id"], row["filter"]]
        sent, withdrawn = getattr(cover, row["command"])(*given)
        expected += [(number, "subscribe", one, one != row["id"]) for one in sent]
        expected += [(number, "unsubscribe", one, False) for one in withdrawn]
    files = ("-o", "messages.parquet", "--uncovered", "kept.csv")
    done = cli(
        "cover", "subscriptions.csv", *SPACE, *COMMANDS, *options, *files, "--json", cwd=folder
    )
    found = [tuple(row.values()) for row in pq.read_table(folder / "messages.parquet").to_pylist()]
    assert found == expected
    facts = json.loads(done.stdout)
    exposed = [one for *_, one in expected].count(True)
    assert facts["exposed"] == exposed > 5
    assert facts["silent"] == len(commands) - len({one for one, *_ in expected}) > 5
    assert (facts["live"], facts["uncovered"]) == (len(cover), len(cover.uncovered()))
    kept = cli("cover", "kept.csv", *SPACE, "--json", "-o", "again.csv", cwd=folder)
    assert json.loads(kept.stdout)["redundant"] == 0
    assert json.loads(kept.stdout)["subscriptions"] == len(cover.uncovered())


def test_a_neighbour_that_does_as_it_hears_wants_the_same_at_all_times(cli, data):
    folder, made, first, commands = data
    points = encode_events(made.tables["events"], made.space).points
    everything = pa.concat_tables(
        [first.add_column(0, "command", [["subscribe"] * len(first)]), commands],
        promote_options="permissive",
    )
    write_table(everything, folder / "everything.jsonl")
    cli("cover", *SPACE, "--commands", "everything.jsonl", "-o", "all.parquet", cwd=folder)
    by_command: dict[int, list] = {}
    for row in pq.read_table(folder / "all.parquet").to_pylist():
        by_command.setdefault(row["command"], []).append(row)
    sets = sets_after(first.slice(0, 0), everything)
    before, neighbour = next(sets), {}
    for number, live in enumerate(sets):
        looks = number % 25 == 0 or number > len(everything) - 5
        now = wanted_by(live, made.space, points) if looks else None
        for row in by_command.get(number, []):
            if row["action"] == "subscribe":
                neighbour[row["subscription"]] = live[row["subscription"]]
            else:
                del neighbour[row["subscription"]]
            if looks:  # nothing that was and is wanted is missed between two messages
                want = wanted_by(before, made.space, points)
                assert (wanted_by(neighbour, made.space, points) >= (want & now)).all()
        if looks:
            assert (wanted_by(neighbour, made.space, points) == now).all()
        before = live


def test_merge_writes_ranges_that_follow_the_commands(cli, data):
    folder, made, first, commands = data
    options = ("--max-ranges", 300, "--max-attributes", 2, "--json")
    files = ("-o", "messages.parquet", "--ranges", "ranges.parquet", "--save", "summary")
    given = ("subscriptions.csv", *SPACE, *COMMANDS, "--events", "events.parquet")
    facts = json.loads(cli("merge", *given, *options, *files, cwd=folder).stdout)
    end = Summary.open(folder / "summary")
    assert facts["cells_digest"] == end.cells.digest
    neighbour = Summary.of(
        first,
        made.space,
        cells=end.cells,
        max_ranges_per_subscription=end.max_ranges_per_subscription,
        gap=end.gap,
    )
    neighbour = Summary.of_ranges(neighbour.ranges(), made.space, cells=end.cells)
    for row in pq.read_table(folder / "messages.parquet").to_pylist():
        both = [np.array([row[side]], np.uint64) for side in ("start", "end")]
        neighbour.receive(RangeForward(**{row["action"]: Ranges(*both)}))
    *_, live = sets_after(first, commands)
    fresh = Summary.of(
        pa.table({"id": [*live], "filter": [*live.values()]}),
        end.space,
        cells=end.cells,
        max_ranges_per_subscription=end.max_ranges_per_subscription,
        gap=end.gap,
    )
    written = pq.read_table(folder / "ranges.parquet")
    for found in (end.ranges(), neighbour.ranges(), (written["start"], written["end"])):
        for side, same in zip(found, fresh.ranges(), strict=True):
            np.testing.assert_array_equal(np.asarray(side), same)
    assert facts["live"] == len(live)
    assert facts["silent"] > 0
    alone = ("merge", *SPACE, *COMMANDS, *options[:4], "-o", "x.csv")
    wrong = cli(*alone, cwd=folder, code=2)
    assert "doesn't exist; no command was applied" in wrong.stderr


def test_events_are_filtered_by_a_saved_summary_alone(cli, data, tmp_path):
    folder, made, _, _ = data
    options = ("--max-ranges", 300, "--max-attributes", 2, "-o", "trade.csv")
    save = ("--save", tmp_path / "sums")
    middle = np.median(made.tables["events"]["price"].to_numpy())
    few = pa.table({"id": ["low"], "filter": [f"price < {middle} and risk < 0.5"]})
    write_table(few, folder / "few.csv")
    cli("merge", "few.csv", "--events", "events.parquet", *SPACE, *options, *save, cwd=folder)
    events = made.tables["events"]
    points = encode_events(events, made.space).points
    summary = Summary.open(tmp_path / "sums")
    held = summary.may_match_many(events)
    live = next(sets_after(few, pa.table({"command": [], "id": [], "filter": []})))
    assert (held >= wanted_by(live, made.space, points)).all()
    assert 0 < held.sum() < len(held)
    write_table(events.append_column("note", pa.array(["x, y"] * len(events))), tmp_path / "e.csv")
    ignore = "--ignore-unknown"
    done = cli("filter", "e.csv", "sums", ignore, "-o", "wanted.csv", "--json")
    header, *rows = (tmp_path / "e.csv").read_text().splitlines()
    kept = [row for row, one in zip(rows, held, strict=True) if one]
    assert (tmp_path / "wanted.csv").read_text().splitlines() == [header, *kept]
    assert json.loads(done.stdout)["rows"] == len(kept)
    assert "no snapshot found" in cli("filter", "e.csv", "nowhere", ignore, code=2).stderr
    assert "note" in cli("filter", "e.csv", "sums", code=2).stderr


def test_ids_of_commands_are_like_those_of_the_subscriptions(cli, tmp_path):
    made, first, commands = history(ids="{:03}".format)
    made.space.save(tmp_path / "space.toml")
    write_table(first, tmp_path / "subscriptions.csv")
    write_table(commands.slice(0, 3), tmp_path / "commands.csv")
    cli("cover", "subscriptions.csv", *SPACE, *COMMANDS, "-o", "a.csv")
    write_table(first.set_column(0, "id", pa.array(range(60))), tmp_path / "numbered.csv")
    texts = pa.table({"command": ["unsubscribe"], "id": ["nobody"]})
    write_table(texts, tmp_path / "commands.csv")
    wrong = cli("cover", "numbered.csv", *SPACE, *COMMANDS, "-o", "a.csv", code=2)
    assert "command 0 has the id nobody" in wrong.stderr


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"command": "subscribe", "id": "a", "filter": "price >"}], "row 0"),
        ([{"command": "unsubscribe", "id": "a", "filter": None}], "'a' doesn't exist"),
        ([{"command": "subscribe", "id": "a", "filter": "true"}] * 2, "'a' already exists"),
        ([{"command": "forget", "id": "a", "filter": "true"}], "command 0 is 'forget'"),
        ([{"command": "subscribe", "id": None, "filter": "true"}], "command 0 has the id None"),
        ([{"command": "subscribe", "filter": "true"}], "require the columns 'command' and 'id'"),
    ],
)
def test_wrong_commands_are_rejected_and_change_nothing(data, rows, expected):
    _, made, _, _ = data
    for one in (CoverSet(made.space), Summary(made.space, bits=3)):
        with pytest.raises(UsageError, match=expected.replace("'", ".")):
            one.update_many(pa.Table.from_pylist(rows))
        assert not len(one)


def test_what_an_unsubscribe_has_beside_its_id_counts_for_nothing(data):
    _, made, _, _ = data
    rows = [
        {"command": "subscribe", "id": 1, "filter": "true"},
        {"command": "unsubscribe", "id": 1, "filter": "not a filter"},
    ]
    todo = as_commands(pa.Table.from_pylist(rows), made.space)
    assert (todo.words, todo.boxes.rows) == (["subscribe", "unsubscribe"], 1)


def test_options_that_make_no_sense_are_rejected(cli, data):
    folder = data[0]
    for command, said in [
        (("cover", *SPACE), "neither subscriptions nor commands"),
        (("cover", "subscriptions.csv", *SPACE, "-k", 2), "-k requires --commands"),
        (
            ("cover", "subscriptions.csv", *SPACE, *COMMANDS, "-k", "x"),
            "k must be a number, at least 1",
        ),
        (
            ("cover", *SPACE, *COMMANDS, "--plot", "p.png"),
            "--plot can't be combined with --commands",
        ),
        (
            ("merge", *SPACE, *COMMANDS, "--max-ranges", 9, "--weighting-events", "e.csv"),
            "--weighting-events can't be combined",
        ),
    ]:
        assert said in cli(*command, cwd=folder, code=2).stderr
