"""`rangecast match --track`: from files what Python gets from events."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rangecast import Engine, Number, Rule, Space, Timestamp, Tracker
from tests.support.track_model import Oracle, by_key, history_of, moment, row_of, rule_of, text

COLUMNS = ["event", "subscription", "transition", "key", "at", "since", "reason", "number", "id"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    Space([Timestamp("at"), Number("value")]).save(tmp_path / "space.toml")
    (tmp_path / "subscriptions.csv").write_text("id,filter\nhigh,value > 5\nlow,value < 2\n")
    (tmp_path / "events.csv").write_text(
        "id,key,at,value\n"
        "1,a,2026-01-01T00:00:00Z,1\n2,a,2026-01-01T00:01:00Z,9\n3,a,2026-01-01T00:00:30Z,3\n"
        "4,b,2026-01-01T00:02:00Z,9\n5,a,2026-01-01T00:09:00Z,4\n6,,2026-01-01T00:09:00Z,4\n"
    )
    return tmp_path


def expected_of(tracker: Tracker, events: Any) -> list[Any]:
    tracker.engine.subscribe("high", "value > 5")
    tracker.engine.subscribe("low", "value < 2")
    return [*tracker.update_many(events), *tracker.flush()]


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ([], {}),
        (["--dwell", "2 min", "--inside"], {"rule": Rule(dwell="2 min"), "inside": True}),
        (["--for", "1 min", "--after", "3 min"], {"rule": Rule(for_="1 min"), "after": "3 min"}),
        (["--lateness", "1 min"], {"lateness": "1 min"}),
        (["--first", "silent"], {"rule": Rule(first="silent")}),
    ],
)
def test_files_give_what_python_gives(options, settings, files: Path, cli: Any):
    events = files / "events.csv"
    done = cli(
        *("match", events, files / "subscriptions.csv", "--space", files / "space.toml"),
        *("--track", "key", "-o", files / "out.parquet", "--json", *options),
    )
    table = pq.read_table(files / "out.parquet")
    assert table.column_names == COLUMNS
    space = Space([Timestamp("at"), Number("value")])
    tracker = Tracker(Engine(space), key="key", time="at", **settings)
    expected = expected_of(tracker, events)
    assert sorted(table["id"].to_pylist()) == sorted(one.id for one in expected)
    rows = {one.id: one for one in expected}
    for row in table.to_pylist():
        one = rows[row["id"]]
        assert (row["event"], row["subscription"], row["transition"]) == (
            one.event,
            one.subscription,
            one.transition,
        )
        assert (row["at"], row["since"], row["reason"]) == (one.at, one.since, one.reason)
    facts = json.loads(done.stdout)
    counts = tracker.late, tracker.repeated, tracker.incomplete
    assert (facts["late"], facts["repeated"], facts["incomplete"]) == counts
    assert facts["incomplete"] == 1


def test_histories_of_files(files: Path, cli: Any):
    for seed in range(8):
        history = history_of(seed)
        history.accuracy, history.rule = False, history.rule._replace(cross=0)
        history.rules.clear()
        events = [step for step in history.steps if step.do == "event"]
        spans = {step.given[0]: step.given[1] for step in history.steps if step.do == "subscribe"}
        if not spans or history.rules:
            continue
        lines = [f"{name},{text(span)}" for name, span in spans.items()]
        (files / "subscriptions.csv").write_text("\n".join(["id,filter", *lines]))
        lines = [
            f"{number},{key},{moment(tick).isoformat()},{value}"
            for key, tick, value, number, _ in (step.given for step in events)
        ]
        (files / "events.csv").write_text("\n".join(["id,key,at,value", *lines]))
        rule = rule_of(history.rule)
        options = {
            "--for": rule.for_,
            "--dwell": rule.dwell,
            "--first": rule.first,
            "--after": history.after and f"{history.after} s",
            "--lateness": None if history.lateness is None else f"{history.lateness} s",
        }
        given = [word for name, one in options.items() if one is not None for word in (name, one)]
        if history.inside:
            given.append("--inside")
        cli(
            *("match", files / "events.csv", files / "subscriptions.csv"),
            *("--space", files / "space.toml", "--track", "key", "-o", files / "out.parquet"),
            *(*given, "-q"),
        )
        start = [history.steps[0]._replace(do="subscribe", given=one) for one in spans.items()]
        history.steps = [*start, *events, history.steps[-1]]
        found = pq.read_table(files / "out.parquet").to_pylist()
        rows = [row_of(_Named(row)) for row in found]
        assert by_key(rows) == by_key(Oracle(history).run()), f"seed {seed}"


RULES = """
accuracy = { value = "error" }
[rule]
cross = "1 h"
[rules.high]
margin = { value = 2 }
schedule = "Sat,Sun 00:00-24:00 UTC"
[policy]
deduplicate = "5 min"
[policies.high]
digest = { at = "09:02", zone = "UTC" }
"""


def test_rules_and_policies_of_a_file(tmp_path: Path, cli: Any):
    attributes = {"at": "timestamp", "value": "number"}
    space = [
        f'[[attribute]]\nname = "{name}"\ntype = "{kind}"' for name, kind in attributes.items()
    ]
    (tmp_path / "space.toml").write_text("\n".join(space))
    (tmp_path / "subscriptions.csv").write_text("id,filter\nhigh,value > 5\nband,value = 4\n")
    lines = ["id,key,at,value,error"]
    for number, (value, error) in enumerate([(3, 0), (5.5, 1), (5.5, 0), (4.5, 0), (3, 0), (8, 0)]):
        lines.append(f"{number},a,2026-01-31T09:0{number}:00Z,{value},{error}")
    (tmp_path / "events.csv").write_text("\n".join(lines))
    (tmp_path / "rules.toml").write_text(RULES)
    done = cli(
        *("match", tmp_path / "events.csv", tmp_path / "subscriptions.csv", "--json"),
        *("--space", tmp_path / "space.toml", "--track", "key", "-o", tmp_path / "out.parquet"),
        *("--rules", tmp_path / "rules.toml"),
    )
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == [*COLUMNS, "notification", "window"]
    rows = [
        (row["event"], row["transition"], row["subscription"], row["window"])
        for row in table.to_pylist()
    ]
    tomorrow = "2026-02-01T09:02:00+00:00"
    assert rows == [
        (1, "cross", "band", None),
        (2, "enter", "high", tomorrow),
        (4, "exit", "high", tomorrow),
        (5, "enter", "high", tomorrow),
    ]
    assert len({row["notification"] for row in table.to_pylist()}) == 2
    assert json.loads(done.stdout)["rows"] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rule", "can't be read"),
        ("[ruls]", "unknown table 'ruls'"),
        ("[rule]\nfr = 1", "table 'rule'"),
        ("[rules.high]\nfor = 'soon'", "must be a length of time"),
        ("[policy]\ndigest = 1", "table 'policy'"),
        ("rules = 1", "'rules' must be a table of tables"),
        ("accuracy = {value = 'nope'}", "events have no such column"),
        ("[rule]\ndwell = '1 min'", "both set the rule of all subscriptions"),
    ],
)
def test_mistakes_of_the_file_are_named(text: str, message: str, files: Path, cli: Any):
    (files / "rules.toml").write_text(text)
    done = cli(
        *("match", files / "events.csv", files / "subscriptions.csv", "--ignore-unknown"),
        *("--space", files / "space.toml", "--track", "key", "--for", "1 s"),
        *("--rules", files / "rules.toml"),
        code=2,
    )
    assert message in done.stderr


class _Named:
    def __init__(self, row: dict[str, Any]):
        self.__dict__.update(row)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dwell", "1 min"], "--dwell requires --track"),
        (["--track", "truck"], "events have no such column"),
        (["--track", "key", "--time", "value"], "the space has no such timestamp"),
        (["--track", "key", "--dwell", "soon"], "dwell must be a length of time"),
        (["--track", "key", "--keep", "value"], "--track can't be combined with --keep"),
    ],
)
def test_mistakes_are_named(options, message, files: Path, cli: Any):
    done = cli(
        *("match", files / "events.csv", files / "subscriptions.csv"),
        *("--space", files / "space.toml", "--ignore-unknown", *options),
        code=2,
    )
    assert message in done.stderr
