"""Events with spans, probabilities and factors from files: what is read, and what becomes a
rejected row.
"""

import csv
import json

import pyarrow as pa
import pytest

from rangecast import Category, Engine, Integer, Number, RejectedRowError, Space, SpaceError
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.encoding.events import encode_events
from rangecast.model.io.records import table_source
from rangecast.rank.scores.factors import read_factors

SPACE = Space([Integer("age", min=0, max=120), Number("credit"), Category("sex", ["f", "m"])])
SUBSCRIPTIONS = """id,filter,score
mortgage,age between 20 and 35 and credit between 400 and 500,0.9
car,age > 18,0.7
travel,credit > 300,0.8
"""
FILES = ("events.csv", "subscriptions.csv", "--space", "space.toml", "-q")


@pytest.fixture
def folder(tmp_path):
    SPACE.save(tmp_path / "space.toml")
    (tmp_path / "subscriptions.csv").write_text(SUBSCRIPTIONS)
    return tmp_path


def ranked(text):
    return [tuple(row.values())[::2] for row in csv.DictReader(text.splitlines())]


def engine():
    made = Engine(SPACE)
    made.subscribe_many([*csv.DictReader(SUBSCRIPTIONS.splitlines())])
    return made


def test_a_span_is_two_columns_or_a_list_and_both_mean_the_same(cli, folder):
    (folder / "events.csv").write_text("id,age_lo,age_hi,age,credit\na,30,50,,441\nb,,,25,441\n")
    lines = [{"id": "a", "age": [30, 50], "credit": 441}, {"id": "b", "age": 25, "credit": 441}]
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for how, of_a in (("overlap", ["mortgage", "travel", "car"]), ("contain", ["travel", "car"])):
        expected = [("a", one) for one in of_a]
        expected += [("b", one) for one in ("mortgage", "travel", "car")]
        for events in ("events.csv", "events.jsonl"):
            done = cli("rank", events, *FILES[1:], "--span", how, cwd=folder)
            assert ranked(done.stdout) == expected
        found = engine().rank_many(
            [{"id": "a", "age": (30, 50), "credit": 441}, {"id": "b", "age": 25, "credit": 441}],
            span=how,
        )
        assert [
            (event, one) for event, best in zip("ab", found, strict=True) for one, _ in best
        ] == (expected)


BAD = [
    ("age_lo,age_hi", "50,30", "age_lo", "begins above its end, age_hi = 30"),
    ("age_lo,age_hi", "30,", "age_hi", "one end of a span is missing"),
    ("age_lo,age_hi", ",30", "age_lo", "one end of a span is missing"),
    ("age_lo", "30", "age_hi", "one end of a span is missing"),
    ("age,age_lo,age_hi", "35,30,40", "age", "there is a value and a span"),
    ("age_lo,age_hi", "30,130", "age_hi", "outside its domain, 0 to 120"),
    ("age_lo,age_hi", "30,old", "age_hi", "is not a number"),
    ("sex_lo,sex_hi", "f,m", "sex_lo", "a category has no order"),
    ("age,age_probability", "30,1.5", "age_probability", "outside its domain, 0 to 1"),
    ("age,age_probability", "30,likely", "age_probability", "number"),
]


@pytest.mark.parametrize(("columns", "values", "column", "reason"), BAD)
def test_what_is_no_span_or_no_chance_is_a_rejected_row(
    cli, folder, columns, values, column, reason
):
    lines = f"id,credit,{columns}\nbad,441,{values}\ngood,441{',' * (columns.count(',') + 1)}\n"
    (folder / "events.csv").write_text(lines)
    asked = ("rank", *FILES, "--probabilities" if "probability" in columns else "--span=contain")
    told = cli(*asked, cwd=folder, code=2)
    assert f"column '{column}'" in told.stderr
    assert reason in told.stderr
    done = cli(*asked, "--rejected", "bad.csv", cwd=folder)
    assert ranked(done.stdout) == [("good", "travel")]
    (bad,) = csv.DictReader((folder / "bad.csv").read_text().splitlines())
    assert bad["column"] == column
    assert reason in bad["reason"]


def test_pairs_of_a_program_are_checked_row_by_row():
    columns = EventColumns(spans=True)
    for wrong in ((1, 2, 3), [1], (5, 2), (None, 3)):
        with pytest.raises(RejectedRowError, match="span"):
            encode_events([{"age": 3}, {"age": wrong}], SPACE, columns=columns)
        with pytest.raises(RejectedRowError, match="row 1"):
            encode_events(pa.table({"age": [[3, 3], list(wrong)]}), SPACE, columns=columns)
    table = pa.table({"age": pa.array([[9, 9], [1, 2], None, [3, 4]]).slice(1)})
    points = encode_events(table, SPACE, columns=columns).points
    assert points[:, [0, 3]].tolist() == [[1, 2], [float("inf")] * 2, [3, 4]]
    fixed = pa.table({"age": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))})
    assert encode_events(fixed, SPACE, columns=columns).points[:, 3].tolist() == [2, 4]


def test_uncertain_events_are_ranked_by_score_times_probability(cli, folder):
    (folder / "events.csv").write_text(
        "id,age_lo,age_hi,age_probability,credit\na,30,50,0.5,441\nb,30,50,,441\n"
    )
    done = cli("rank", *FILES, "--probabilities", cwd=folder)
    rows = [*csv.DictReader(done.stdout.splitlines())]
    assert [(row["event"], row["subscription"], float(row["score"])) for row in rows] == [
        ("a", "travel", 0.8),
        ("a", "car", 0.35),
        ("b", "travel", 0.8),
        ("b", "car", 0.7),
    ]
    events = [{"age_lo": 30, "age_hi": 50, "age_probability": 0.5, "credit": 441}]
    assert engine().rank_many(events, probabilities={})[0] == [("travel", 0.8), ("car", 0.35)]
    assert engine().rank(events[0], probabilities={"age": 0.25}) == [
        ("travel", 0.8),
        ("car", 0.175),
    ]


@pytest.mark.parametrize("index", ["segment", "interval-ends", "sopt:branching=2", "ir", "scan"])
def test_every_structure_ranks_spans_and_uncertain_events_in_the_shell(cli, folder, index):
    (folder / "events.csv").write_text("id,age_lo,age_hi,credit\na,30,50,441\n")
    uncertain = "id,age_lo,age_hi,age_probability,credit\na,30,50,0.5,441\n"
    (folder / "uncertain.csv").write_text(uncertain)
    for events, *options in (
        ("uncertain.csv", "--probabilities"),
        ("events.csv", "--span", "contain"),
        ("events.csv", "--span", "overlap"),
    ):
        asked = events, *FILES[1:], *options, "--index"
        found = [cli("rank", *asked, name, cwd=folder).stdout for name in ("auto", index)]
        assert found[0] == found[1] != ""


def test_columns_of_spans_without_the_option_are_named_with_what_to_do(cli, folder):
    (folder / "events.csv").write_text("id,age_lo,age_hi\na,1,2\n")
    for command in ("rank", "match"):
        told = cli(command, *FILES, cwd=folder, code=2)
        assert "unknown column 'age_lo'" in told.stderr
        assert "takes such columns with --span" in told.stderr


def test_what_does_not_go_together_is_rejected(cli, folder):
    (folder / "events.csv").write_text("id,age\na,1\n")
    (folder / "factors.csv").write_text("event,subscription,factor\na,car,2\n")
    for options, told in (
        (("--span", "overlap", "--relaxed"), "ranked exactly"),
        (("--probabilities", "--relaxed"), "ranked exactly"),
        (("--probabilities", "--span", "overlap"), "contain them"),
        (("--probabilities", "--score-factors", "factors.csv"), "no score factors"),
    ):
        assert told in cli("rank", *FILES, *options, cwd=folder, code=2).stderr


def test_factors_multiply_scores(cli, folder):
    (folder / "events.csv").write_text("id,age,credit\n7,25,441\n8,25,441\n")
    rows = ["7,mortgage,0.5", "7,car,0", "9,car,3", "7,nobody,2"]
    (folder / "factors.csv").write_text("\n".join(["event,subscription,factor", *rows]))
    command = ("rank", *FILES[:-1], "--score-factors", "factors.csv")
    done = cli(*command, cwd=folder)
    found = [*csv.DictReader(done.stdout.splitlines())]
    assert [(row["event"], row["subscription"], float(row["score"])) for row in found] == [
        ("7", "travel", 0.8),
        ("7", "mortgage", 0.45),
        ("7", "car", 0.0),
        ("8", "mortgage", 0.9),
        ("8", "travel", 0.8),
        ("8", "car", 0.7),
    ]
    assert "warning: 1 row of factors.csv: there is no such subscription" in done.stderr
    for line, told in (
        ("7,car,-1", "outside its domain"),
        ("7,car,", "the factor is missing"),
        (",car,1", "or a non-empty string"),
        ("7,,1", "or a non-empty string"),
    ):
        (folder / "factors.csv").write_text("\n".join(["event,subscription,factor", *rows, line]))
        assert told in cli(*command, cwd=folder, code=2).stderr
        cli(*command, "--rejected", "bad.csv", cwd=folder)
        (bad,) = csv.DictReader((folder / "bad.csv").read_text().splitlines())
        assert told in bad["reason"]
    (folder / "factors.csv").write_text("\n".join(["event,subscription,factor", *rows, rows[0]]))
    told = cli(*command, cwd=folder, code=2).stderr
    assert "two factors are given for event 7 and subscription 'mortgage'" in told
    (folder / "factors.csv").write_text("event,subscription\n7,car\n")
    assert "factors must have the columns" in cli(*command, cwd=folder, code=2).stderr


def test_factors_are_looked_up_by_row():
    given = {"event": [3, 1, 3], "subscription": ["b", "a", "a"], "factor": [2.0, 0.5, 4.0]}
    table = read_factors(table_source(pa.table(given), "factors"), pa.int64(), pa.string())
    factors = table.rows_of(pa.array(["a", "x", "b"]))
    assert factors.bounds == (0.5, 4.0)
    every = pa.array([0, 1, 2]).to_numpy().astype("int32")
    places = {event: place for place, event in enumerate(table.events.to_pylist())}
    assert factors.of(places[3], every).tolist() == [4.0, 1.0, 2.0]
    assert factors.of(places[1], every).tolist() == [0.5, 1.0, 1.0]
    assert factors.of(float("inf"), every).tolist() == [1.0, 1.0, 1.0]
    none = table.rows_of(pa.array(["x"]))
    assert none.bounds == (1.0, 1.0)
    assert none.of(places[3], every[:1]).tolist() == [1.0]


def test_an_attribute_can_not_be_called_as_the_chance_of_another():
    with pytest.raises(SpaceError, match="is ambiguous"):
        Space([Number("x"), Number("x_probability")])
