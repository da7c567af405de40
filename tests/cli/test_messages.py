"""Messages of the shell: errors come with a hint, and no input is ignored."""

import json
import re
import subprocess
import sys
from typing import ClassVar

import numba
import pyarrow as pa
import pytest

from rangecast.cli.main import app
from rangecast.cli.shared.option_groups import RunOptions
from rangecast.cli.shared.output import counted, progress, taken
from rangecast.cli.shared.progress import StreamProgress
from rangecast.cli.shared.run import Run
from rangecast.errors import RejectedRow, RejectedRowError, SpaceError
from rangecast.kernels.jit import timing_compilation
from rangecast.model.io.line_numbers import line_of
from rangecast.model.io.rejected import CollectedRows, RejectedRows
from rangecast.model.io.writer import TableWriter
from rangecast.model.space import Space

SPACE = """
[[attribute]]
name = "price"
type = "number"
[[attribute]]
name = "at"
type = "timestamp"
[[attribute]]
name = "kind"
type = "category"
values = ["x", "y", "z"]
"""
SUBSCRIPTIONS = "id,filter\nlow,price < 10\ntwo,\"kind in ('x', 'z') and price < 5\"\n"
MATCH = ("match", "events.csv", "subs.csv", "--space", "space.toml", "--index", "scan")
RANK = ("rank", *MATCH[1:])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "subs.csv").write_text(SUBSCRIPTIONS)
    (tmp_path / "events.csv").write_text("id,price,at,kind\na,1,2026-01-31,x\nb,20,,\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*RANK, "--time-attribute", "at"), "--time-attribute at requires a limit"),
        ((*RANK, "--master", "local[2]"), "pass --engine spark, or leave out --master"),
        ((*MATCH, "--master", "local[2]"), "pass --engine spark, or leave out --master"),
        (
            (*MATCH, "--engine", "spark", "--threads", "2"),
            "--threads only works with --engine local",
        ),
        (("notify", "o", "u", "i", "--batch-size", "4"), "pass --algorithm batch, or leave out"),
        ((*MATCH, "--engine", "sprak"), "'sprak' is not one of 'local', 'spark'"),
        ((*MATCH, "-o", "-", "--rejected", "-"), "-: is given for two outputs"),
        ((*MATCH, "-o", "no/m.csv"), "there is no folder no\n  hint: create it first"),
        (("match", "evants.csv", *MATCH[2:]), "did you mean 'events.csv'?"),
        (("match", "no/e.csv", *MATCH[2:]), "nor is there a folder no"),
        (("match", "-", "-", *MATCH[3:]), "only one input can be - (stdin)"),
    ],
)
def test_what_would_be_ignored_or_fail_is_rejected_with_what_to_do(cli, folder, arguments, told):
    assert told in cli(*arguments, code=2).stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"id;price\n1;5\n", "separated by ';'\n  hint: save it with commas"),
        (
            b"id,kind\n1,x\n2,\xfc\n",
            "the row is not UTF-8; save the file as UTF-8",
        ),
        (b'id,price\n1,"12,000"\n', "is not a number: leave out the commas\n  given: 12,000\n"),
        (b'id,price\n1,"12,5"\n', "is not a number: write a point instead of the comma"),
        (
            b"id,kind\n1,w\n",
            "must be one of its listed values (known: 'x', 'y', 'z')\n  given: w\n",
        ),
        (
            b"id,price\n\n1,1\n2,u\n3,v\n4,w\n",
            (
                "events.csv, line 4 (row 1, counted from 0), column 'price': 'u' is not a number\n"
                "  given: u\n"
                "  also: 2 more rows so far are rejected for 'price'\n"
                "  hint: correct the value, or write rejected rows to a file with --rejected FILE\n"
            ),
        ),
        (
            b"id,price\n1,1\n1,2\n",
            "a unique id, or write rejected rows to a file with --rejected FILE",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_what_to_do(cli, folder, content, told):
    (folder / "events.csv").write_bytes(content)
    said = cli(*MATCH, code=2)
    assert told in said.stderr
    assert said.stderr.count("given:") <= 1
    assert said.stdout == ""  # not even a header


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("at >= 2010-04-01", "put a date in quotes: '2010-04-01'"),
        ("at < 2010-04-01T10:00:00Z", "put a date in quotes: '2010-04-01T10:00:00Z'"),
        ("price > 12,000", "leave out the comma: 12000"),
        ("kind = x", "quote strings: 'x'"),
        ("price = 'x'", "correct the value"),
        ("", "write true to match every event"),
    ],
)
def test_a_bad_filter_has_one_remedy(cli, folder, text, hint):
    (folder / "subs.csv").write_text(f'id,filter\nlow,price < 1\nbad,"{text}"\n')
    aside = "or write rejected rows to a file with --rejected FILE"
    for command in (("why", "{}", "subs.csv", "low", "--space", "space.toml"), MATCH):
        said = cli(*command, code=2).stderr
        begin = "rangecast: subs.csv, line 3 (row 1, counted from 0), column 'filter'"
        assert said.startswith(begin)
        assert said.endswith(f"\n  hint: {hint}, {aside}\n")
        assert said.count("hint:") == 1


def test_the_file_of_rejected_rows_gives_no_advice_that_was_followed(cli, folder):
    (folder / "events.csv").write_text("id,price\n1,x\n")
    said = cli(*MATCH, "--rejected", "bad.jsonl", "-o", "m.csv").stderr
    assert "0 events against 2 subscriptions: 0 rows in" in said
    assert "; 1 rejected row in bad.jsonl" in said
    (bad,) = map(json.loads, (folder / "bad.jsonl").read_text().splitlines())
    assert (bad["reason"], bad["remedy"]) == ("'x' is not a number", "correct the value")


def test_the_header_of_events_is_read_before_subscriptions(cli, folder):
    (folder / "events.csv").write_text("id,prise\n1,1\n")
    (folder / "subs.csv").write_text("nonsense")
    assert "unknown column 'prise': did you mean 'price'?" in cli(*MATCH, code=2).stderr
    (folder / "m.csv").write_text("event,subscription\n")
    said = cli("report", "events.csv", "subs.csv", "m.csv", "--space", "space.toml", code=2)
    assert "unknown column 'prise'" in said.stderr


def test_generate_keeps_what_is_not_its_own(cli, folder):
    make = ("generate", "market", "--subscriptions", 3, "--events", 1, "-o", ".")
    assert "space.toml: already exists, and wasn't generated" in cli(*make, code=2).stderr
    assert (folder / "space.toml").read_text() == SPACE
    assert not (folder / "events.parquet").exists()
    said = cli(*make, "--overwrite").stderr
    for part in ("subscriptions.parquet (3 rows)", "events.parquet (1 row)", "space.toml"):
        assert part in said
    cli(*make, "--seed", 2)  # its own files it replaces
    (folder / "space.toml").write_text(SPACE)
    assert "has changed since it was generated" in cli(*make, code=2).stderr
    facts = json.loads(cli(*make, "--overwrite", "--json").stdout)
    assert (facts["files"], facts["space"]) == (
        {"subscriptions.parquet": 3, "events.parquet": 1},
        "space.toml",
    )


def test_why_shows_one_alternative_whole_and_the_others_in_a_line(cli, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    event = {"price": 1, "kind": "z", "at": "2026-01-31T09:30:00.123456+00:00", "title": "?"}
    given = ("why", json.dumps(event), "subs.csv", "two", "--space", "space.toml")
    assert "no attribute 'title'" in cli(*given, code=2).stderr.replace("unknown", "no")
    said = cli(*given, "--ignore-unknown").stdout
    assert "alternative 2 of 2" in said
    assert "alternative 1: kind = 'x' fails at z\n" in said
    assert "two matches" in said
    assert "…" not in said  # a value too long for the column goes on below
    assert said.count("┃ attribute ┃") == 1


def test_no_progress_where_data_is_written_to_the_terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for on_terminal, output, hidden in (
        (True, "-", True),
        (True, "m.csv", False),
        (False, "-", False),
    ):
        monkeypatch.setattr(sys.stdout, "isatty", lambda on=on_terminal: on)
        bars = progress(quiet=False, on_stdout=output == "-")
        assert bars.disable == hidden


def test_a_csv_has_its_header_with_the_first_row_or_at_a_good_end(tmp_path):
    schema = pa.schema([("a", pa.int64())])
    with TableWriter(tmp_path / "none.csv", schema):
        pass
    assert (tmp_path / "none.csv").read_text() == "a\n"
    with TableWriter(tmp_path / "some.csv", schema) as writer:
        writer.write(pa.record_batch({"a": [1]}))
        writer.write(pa.record_batch({"a": [2]}))
    assert (tmp_path / "some.csv").read_text() == "a\n1\n2\n"


def test_compiling_is_told_once_and_timed():
    told = []
    double = numba.njit(lambda x: 2 * x)
    with timing_compilation(lambda: told.append(1)) as compiled:
        assert double(2) == 4
        once = compiled.seconds
        assert double(3) == 6
        assert (told, compiled.seconds) == ([1], once)
        assert double(2.5) == 5.0
    assert told == [1]
    assert compiled.seconds > once > 0
    double("text")
    assert compiled.seconds < 1000


@pytest.mark.parametrize("output", [None, "-"])
def test_json_of_a_batch_leaves_stdout_to_results(capsys, output):
    class Done:
        events = matches = rejected = rejected_edits = version = subscriptions = 1
        seconds = 0.5
        steps: ClassVar[dict[str, int]] = {"match": 1}
        lag = None

        def facts(self):
            return {"events": 1}

    with Run.started(output, options=RunOptions(as_json=True)) as run:
        StreamProgress(run).add_batch(Done())
    line = '{"events": 1}\n'
    assert tuple(capsys.readouterr()) == (("", line) if output else (line, ""))


def test_words_for_numbers():
    assert (counted(1, "row"), counted(2000, "row")) == ("1 row", "2,000 rows")
    assert counted(0, "match", "matches") == "0 matches"
    assert taken(3.0, 2.0, 10) == "in 3.00 s, 2.00 s of it compiling (10/s)"
    assert taken(2.0, 0.0, 10) == "in 2.00 s (5/s)"
    assert taken(2.0) == "in 2.00 s"


def test_help_shows_every_command_in_a_whole_line(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = cli("--help").stdout
    groups = re.findall(r"\n(\w[\w ]*):\n((?:  .*\n)+)", text)
    listed = [line for title, lines in groups if title != "Options" for line in lines.splitlines()]
    assert len(listed) == len(app.registered_commands) + len(app.registered_groups)
    assert not [line for line in listed if line.endswith("...")]


def test_python_m_rangecast_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "rangecast", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip() != "") == (0, True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('type = "date"', "unknown type 'date'; use 'timestamp'"),
        ('type = "float"', "use 'number'"),
        ('type = "hierarchy"\ntree = "cities.csv"', "not as a file name; given: 'cities.csv'"),
    ],
)
def test_a_space_says_what_to_write_instead(given, told):
    with pytest.raises(SpaceError, match=told):
        Space.from_toml(f'[[attribute]]\nname = "a"\n{given}\n')


def test_the_line_of_a_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "t.csv"
    table.write_text('a,b\n1,"two\nlines"\n\n2,x\n')
    assert [line_of(str(table), row) for row in (0, 1, 2)] == [
        (str(table), 2),
        (str(table), 5),
        None,
    ]
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
    assert line_of("t.jsonl", 1) == ("t.jsonl", 3)
    (tmp_path / "events").write_text("a\n1\n2\n")
    assert line_of("events", 1) is None  # that is what a table of Python is called
    assert line_of(str(table), None) is None


def test_a_remedy_comes_whole_from_spark():
    events = pytest.importorskip("rangecast.spark.events")
    from rangecast.spark.subscriptions.encode import report_errors

    kept = CollectedRows()
    for remedy in ("quote strings: 'x'", "correct the value"):
        kept.add(RejectedRow("subscriptions", 0, "filter", "k = x", "expected a value", remedy), "")
        table = pa.table({"id": ["s"], "error": events.error_array(kept).slice(len(kept.kept) - 1)})
        with pytest.raises(RejectedRowError) as error:
            report_errors(table, RejectedRows())
        assert str(error.value).endswith(f"expected a value\n  given: k = x\n  hint: {remedy}")


def test_what_is_written_is_not_described_as_what_is_read(cli, folder):
    (folder / "there").mkdir()
    said = cli(*MATCH, "-o", "there", code=2).stderr
    assert said == "rangecast: there: is a folder; give a file name\n"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "at > now()",
            "functions are abs, min, max, starts_with and so on; or write a value: 5 or 'tech'",
        ),
        ("price < 1 & price > 0", "write and instead of &"),
    ],
)
def test_a_remedy_can_be_read_beside_another_one(cli, folder, text, hint):
    (folder / "subs.csv").write_text(f'id,filter\nbad,"{text}"\n')
    said = cli(*MATCH, code=2).stderr
    assert said.endswith(
        f"\n  hint: {hint}, or write rejected rows to a file with --rejected FILE\n"
    )


def test_every_command_takes_a_snapshot(cli, folder):
    from rangecast.engine import Engine

    engine = Engine(Space.from_toml(SPACE))
    engine.subscribe_many(folder / "subs.csv")
    engine.save(folder / "saved")
    for verb, *options in (MATCH, RANK):
        plain = cli(verb, *options).stdout
        assert "a,low" in plain or "a,1,low" in plain
        assert cli(verb, "events.csv", "saved", *options[2:]).stdout == plain
    told = cli("why", '{"price": 1}', "saved", "low", "--space", "space.toml").stdout
    assert "low matches" in told


def test_why_of_an_event_of_a_file(cli, folder):
    (folder / "events.csv").write_text("id,price,kind\na,1,x\nb,oops,x\nc,20,\n")
    why = ("subs.csv", "low", "--space", "space.toml", "--events", "events.csv")
    assert "rejected rows to a file" in cli("why", "c", *why, code=2).stderr
    aside = (*why, "--rejected", "bad.csv")
    told = "low does not match: price < 10 fails at 20."
    assert told in cli("why", "c", *aside).stdout
    assert told in cli("why", "2", *aside, "--row").stdout  # as the file counts, rejected rows too
    assert "low matches" in cli("why", "a", *aside).stdout
    assert "events.csv has no event '2'" in cli("why", "2", *aside, code=2).stderr
    assert "--row must be a number" in cli("why", "a", *aside, "--row", code=2).stderr
    assert "pass --events FILE" in cli("why", "{}", *why[:4], "--row", code=2).stderr
    (folder / "events.jsonl").write_text('{"price": 1}\n{"price": 20}\n')
    assert told in cli("why", "1", *why[:5], "events.jsonl").stdout
