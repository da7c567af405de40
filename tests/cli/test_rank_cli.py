"""`rangecast rank` and what `why` says of a rank."""

import json
from functools import partial

import pytest

from rangecast.cli.tasks.limit import in_order
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.rank.choose import INDEXES
from rangecast.rank.rate_limit import RateLimiter

SPACE = """
[[attribute]]
name = "at"
type = "timestamp"
[[attribute]]
name = "price"
type = "number"
[[attribute]]
name = "symbol"
type = "string"
"""
SUBSCRIPTIONS = """id,filter,score,weight_price
cheap,price < 10,1,2
apple,symbol = 'AAPL',3,1
both,price < 20 and symbol = 'AAPL',2,0.5
any,true,0,1
"""
EVENTS = """id,at,price,symbol
e1,2026-01-01T00:00:01,5,AAPL
e2,2026-01-01T00:00:01.5,15,AAPL
e3,2026-01-01T00:00:02,15,IBM
e4,,3,IBM
"""


@pytest.fixture
def rank(cli, tmp_path):
    for name, text in (("s.toml", SPACE), ("subs.csv", SUBSCRIPTIONS), ("events.csv", EVENTS)):
        (tmp_path / name).write_text(text)
    return partial(cli, "rank", "events.csv", "subs.csv", "--space", "s.toml")


def lines(done):
    return done.stdout.splitlines()[1:]


EXACT = [
    *("e1,1,apple,3", "e1,2,both,2", "e1,3,cheap,1", "e1,4,any,0"),
    *("e2,1,apple,3", "e2,2,both,2", "e2,3,any,0"),
    *("e3,1,any,0", "e4,1,cheap,1", "e4,2,any,0"),
]


@pytest.mark.parametrize("index", ["auto", *INDEXES])
def test_every_index_gives_the_same_file(rank, index):
    assert lines(rank("--index", index)) == EXACT
    assert lines(rank("--index", index, "--relaxed", "-k", "2")) == [
        *("e1,1,cheap,2", "e1,2,both,1.5"),
        *("e2,1,both,1.5", "e2,2,apple,1"),
        *("e3,1,both,0.5", "e4,1,cheap,2", "e4,2,both,0.5"),
    ]


@pytest.mark.parametrize(
    ("combine", "e1"),
    [
        ("sum", ["e1,1,cheap,2", "e1,2,both,1.5", "e1,3,apple,1"]),
        ("max", ["e1,1,cheap,2", "e1,2,apple,1", "e1,3,both,1"]),
        ("min", ["e1,1,cheap,2", "e1,2,apple,1", "e1,3,both,0.5"]),
        ("product", ["e1,1,cheap,2", "e1,2,apple,1", "e1,3,both,0.5"]),
    ],
)
def test_weights_are_combined(cli, rank, combine, e1):
    assert lines(rank("--relaxed", "--combine", combine))[:3] == e1
    given = ("why", '{"price": 5, "symbol": "AAPL"}', "subs.csv", "both", "--space", "s.toml")
    place = json.loads(cli(*given, "--relaxed", "--combine", combine, "--json").stdout)["rank"]
    right = next(one for one in e1 if "both" in one).split(",")
    assert (place["rank"], place["score"]) == (int(right[1]), float(right[3]))


def test_a_budget_an_event_and_a_second(rank):
    assert lines(rank("-k", "1")) == [one for one in EXACT if ",1," in one]
    assert lines(rank("--max-per-second", "3")) == [
        *("e1,1,apple,3", "e1,2,both,2"),  # of the first second: 3, 3 and the first 2
        "e2,1,apple,3",
        *("e3,1,any,0", "e4,1,cheap,1", "e4,2,any,0"),
    ]
    assert lines(rank("--max-per-second", "3", "--time-attribute", "at")) == lines(
        rank("--max-per-second", "3")
    )


def budgeted(rank, order, monkeypatch, tmp_path):
    """Rank events with a rate limit, one at a time; return the rows and the `RateLimiter`."""
    budgets = []

    class Watched(RateLimiter):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            budgets.append(self)

    monkeypatch.setattr("rangecast.rank.rate_limit.RateLimiter", Watched)
    monkeypatch.setattr("rangecast.rank.answerer.PIECE", 1)
    texts = [f"e{i},2026-01-01T00:{i // 120:02}:{i // 2 % 60:02}.{i % 2},5,AAPL" for i in order]
    (tmp_path / "events.csv").write_text("\n".join(["id,at,price,symbol", *texts, ""]))
    done = rank("--max-per-second", "5", "--json")
    (budget,) = budgets
    assert json.loads(done.stderr.splitlines()[-1])["in_order"] == budget.in_order
    return done.stdout.splitlines()[1:], budget


def test_a_second_is_written_when_the_next_begins_if_events_are_sorted(rank, monkeypatch, tmp_path):
    """Two events a second of four answers each, and room for five: 300 seconds."""
    rows, budget = budgeted(rank, range(600), monkeypatch, tmp_path)
    assert len(rows) == 300 * 5
    assert rows[:5] == [
        *("e0,1,apple,3", "e0,2,both,2", "e0,3,cheap,1"),
        *("e1,1,apple,3", "e1,2,both,2"),
    ]
    assert budget.max_held <= 2 * 5 + 4


def test_nothing_is_lost_if_events_are_not_in_order(rank, monkeypatch, tmp_path):
    """The same answers as in order, save which of equal ones stay: those that come first."""
    order = [*range(1, 600, 2), *range(0, 600, 2)]
    rows, budget = budgeted(rank, order, monkeypatch, tmp_path)
    assert len(rows) == 300 * 5
    assert rows[:3] == ["e1,1,apple,3", "e1,2,both,2", "e1,3,cheap,1"]
    assert rows[-2:] == ["e598,1,apple,3", "e598,2,both,2"]
    assert budget.max_held > 300 * 5
    done = rank("--max-per-second", "5", "-o", "out.csv")
    assert "events are not ordered by 'at', or lack it: results are held back" in done.stderr


def test_an_event_that_is_no_event_is_not_out_of_order(tmp_path):
    at = Timestamp("at")
    events = tmp_path / "events.csv"
    for times, ordered in (
        (["2026-01-01", "tomorrow", "2026-01-02"], True),
        (["2026-01-01", "", "2026-01-02"], False),
        (["2026-01-01T00:00:00.9", "2026-01-01T00:00:00.1"], True),
        (["1969-12-31T23:59:59", "1970-01-01"], True),
        (["2026-01-02", "2026-01-01"], False),
        ([], True),
    ):
        events.write_text("\n".join(["id,at", *(f"e{i},{t}" for i, t in enumerate(times)), ""]))
        assert in_order(events, at) == ordered
    events.write_text("id,price\n1,2\n")
    assert not in_order(events, at)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--max-per-second", "0"], "a whole number, at least 1"),
        (["--max-per-second", "5", "--time-attribute", "price"], "isn't a timestamp of this space"),
        (["--index", "slab"], "no index 'slab' for ranking: did you mean 'slabs'?"),
        (
            ["--index", "ir:branching=1"],
            "'branching' of index 'ir' takes a whole number, 2 or more",
        ),
        (["--combine", "max"], "weights are only combined in relaxed ranking"),
    ],
)
def test_mistakes_are_told(rank, given, told):
    assert told in rank(*given, code=2).stderr


def test_rejected_rows_are_written_once(rank, tmp_path):
    events = tmp_path / "events.csv"
    events.write_text(EVENTS + "e5,2026-01-01T00:00:01,cheap,IBM\n")
    assert lines(rank("--max-per-second", "99", "--rejected", "bad.jsonl")) == EXACT
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 1


def test_the_plan_is_told(rank):
    done = rank("--explain-plan")
    assert "plan: slabs: 4 boxes on 3 attributes, ranked by score" in done.stderr
    facts = json.loads(rank("--json", "--relaxed").stderr.splitlines()[-1])
    assert (facts["index"], facts["relaxed"], facts["k"]) == ("slabs", True, 10)


def test_why_tells_the_rank(cli, rank):
    given = ("why", '{"price": 5, "symbol": "AAPL"}', "subs.csv")
    space = ("--space", "s.toml")
    done = cli(*given, "cheap", *space)
    assert "rank: 3rd: score 1; 2 better ones match this event" in done.stdout
    place = json.loads(cli(*given, "both", *space, "--relaxed", "--json").stdout)["rank"]
    assert (place["rank"], place["score"]) == (2, 1.5)
    assert place["verdict"] == "2nd: score 1.5; 1 better one matches some of this event"
