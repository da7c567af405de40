"""Options: what they can choose from, stdin and stdout, completion, and the examples of help."""

import os
import re
import shlex
import subprocess
import sys
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.cli.main import app
from rangecast.cli.shared.options import (
    Algorithm,
    Combine,
    CoverIndex,
    FirstSighting,
    Format,
    MatchIndex,
    RankIndex,
)
from rangecast.cover.choose import INDEXES as COVER
from rangecast.match.choose import INDEXES as MATCH
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.model.io.files import SUFFIXES
from rangecast.model.space import Space
from rangecast.notify.board import ALGORITHMS
from rangecast.rank.choose import INDEXES as RANK
from rangecast.rank.scores.combine import COMBINATIONS
from rangecast.store.versions import Versions
from rangecast.track.rules import FIRST

SPACE = """
[[attribute]]
name = "price"
type = "number"
min = 0
max = 100
[[attribute]]
name = "time"
type = "timestamp"
"""
SUBSCRIPTIONS = "id,filter\ncheap,price < 10\ncheaper,price < 5\ndear,price > 50\n"
EVENTS = "id,price,time\na,5,2026-01-01\nb,7,2026-01-01\nc,60,2026-01-02\n"
MATCHES = "event,subscription\na,cheap\nb,cheap\nc,dear\n"
FILES = ("events.csv", "subscriptions.csv", "--space", "space.toml")

ZONES = """id,filter
west,"within(place, 'POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))')"
east,"within(place, 'POLYGON ((1 0, 2 0, 2 1, 1 1, 1 0))')"
"""


@pytest.fixture
def data(tmp_path):
    for name, text in (
        ("space.toml", SPACE),
        ("subscriptions.csv", SUBSCRIPTIONS),
        ("events.csv", EVENTS),
        ("matches.csv", MATCHES),
        ("commands.csv", "command,id,filter\nsubscribe,all,price > 0\nunsubscribe,all,\n"),
        ("objects.csv", "id,position,value\na,1,5\nb,2,3\n"),
        ("updates.csv", "id,value\nb,9\na,1\n"),
        ("interests.csv", "id,position_lo,position_hi\n0,0,5\n"),
        ("flats.csv", "id,price,time,value\na,5,2026-01-01,5\nb,7,2026-01-02,3\n"),
        ("rents.csv", "id,value\nb,9\na,1\n"),
        ("trades.csv", "id,stock,price,time\n7,A,5,2026-01-01\n8,A,50,2026-01-02\n"),
        ("quotes.csv", "quote_id,price,venue\nq,5,XETRA\n"),
        ("rules.json", '{"cheap": {"price": [{"numeric": ["<", 10]}]}}'),
        ("city.toml", '[[attribute]]\nname = "place"\ntype = "point"\n'),
        ("zones.csv", ZONES),
        ("wishes.csv", "id,filter\n0,price < 6\n"),
    ):
        (tmp_path / name).write_text(text)
    space = Space.load(tmp_path / "space.toml")
    boxes = read_subscriptions(tmp_path / "subscriptions.csv", space)
    Versions(tmp_path / "versions").commit(boxes, space)
    return tmp_path


@pytest.mark.parametrize(
    ("choices", "registered"),
    [
        (MatchIndex, ["auto", *MATCH]),
        (RankIndex, ["auto", *RANK]),
        (CoverIndex, ["auto", *COVER]),
        (Combine, COMBINATIONS),
        (Algorithm, [*ALGORITHMS, "batch", "batch-dense"]),
        (Format, SUFFIXES.values()),
        (FirstSighting, FIRST),
    ],
)
def test_the_choices_are_what_is_registered(choices, registered):
    assert {*get_args(choices)} == {*registered}


# ---- stdin and stdout


def packed(form):
    """The events in a format, as bytes."""
    if form == "csv":
        return EVENTS.encode()
    names, *rows = (line.split(",") for line in EVENTS.split())
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, sink)
    elif form == "jsonl":
        return b"\n".join(str(row).replace("'", '"').encode() for row in table.to_pylist())
    else:
        new = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with new(sink, table.schema) as writer:
            writer.write(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow", "arrow stream"])
def test_the_first_bytes_of_stdin_tell_its_format(cli, data, form):
    assert cli("match", "-", *FILES[1:], stdin=packed(form)).stdout == MATCHES


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("subscriptions.csv", ("match", *FILES)),
        ("space.toml", ("rank", *FILES, "--max-per-second", "2")),
        ("events.csv", ("rank", *FILES, "--max-per-second", "2")),
        ("subscriptions.csv", ("cover", *FILES[1:], "--uncovered", "-", "-o", "covered.csv")),
        ("events.csv", ("merge", *FILES[1:], "--events", "events.csv", "--max-ranges", 5)),
        ("objects.csv", ("notify", "objects.csv", "updates.csv", "interests.csv")),
        ("updates.csv", ("notify", "objects.csv", "updates.csv", "interests.csv")),
        ("matches.csv", ("verify", *FILES[:2], "matches.csv", *FILES[2:])),
        ("events.csv", ("verify", *FILES[:2], "matches.csv", *FILES[2:])),
        ("events.csv", ("report", *FILES[:2], "matches.csv", *FILES[2:], "-o", "-")),
        ("subscriptions.csv", ("why", '{"price": 1}', "subscriptions.csv", "cheap", *FILES[2:])),
    ],
)
def test_every_file_can_come_from_stdin(cli, data, name, command):
    given = ["-" if one == name else one for one in command]
    text = (data / name).read_bytes()
    expected = cli(*command).stdout
    assert cli(*given, stdin=text).stdout.replace(" of -", f" of {name}") == expected


def test_what_is_wrong_with_stdin_is_said_of_stdin(cli, data):
    given = ("match", "-", *FILES[1:])
    done = cli(*given, stdin=b"id,price\n1,2\n2,dear\n", code=2)
    assert done.stderr.startswith(
        "rangecast: stdin, line 3 (row 1, counted from 0), column 'price'"
    )
    assert "stdin: unknown column 'prise'" in cli(*given, stdin=b"id,prise\n", code=2).stderr
    assert "stdin: is empty" in cli(*given, code=2).stderr
    assert "hint: pipe it through gzip -dc" in cli(*given, stdin=b"\x1f\x8b\0", code=2).stderr
    assert "stdin: not valid TOML" in cli("match", *FILES[:3], "-", stdin=b"= 1", code=2).stderr
    aside = ("--rejected", "bad.csv", "-o", "out.csv")
    cli(*given, *aside, stdin=b"id,price\n1,2\n2,dear\n")
    assert (data / "bad.csv").read_text().splitlines()[1].startswith("stdin,1,price,dear,")
    done = cli("match", *FILES, "-o", "out.csv", "--rejected", "-", "--json")
    assert (done.stdout.splitlines()[0], done.stderr[0]) == (
        "file,row,column,value,reason,remedy,data",
        "{",
    )


# ---- completion and help


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rangecast m", {"match", "merge"}),
        ("rangecast match --index ", {*get_args(MatchIndex)}),
        ("rangecast rank --index in", {"interval", "interval-ends"}),
        ("rangecast cover --engine ", {"local", "spark"}),
        ("rangecast notify --algorithm d", {"dense"}),
        ("rangecast generate market --format ", {*get_args(Format)}),
        ("rangecast merge --max-a", {"--max-attributes"}),
    ],
)
def test_the_shell_completes_commands_options_and_choices(words, expected):
    count = len(words.split()) - (not words.endswith(" "))
    asked = {"_RANGECAST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    code = "import sys; sys.argv[0] = 'rangecast'; from rangecast.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True
    )
    assert {*done.stdout.split()} == expected, done.stderr


def test_completion_can_be_installed(cli):
    for option in ("--install-completion", "--show-completion"):
        assert option in cli("--help").stdout


def examples(text):
    """The commands that a help text shows."""
    _, _, shown = text.partition("Examples:\n")
    block = re.match(r"(  .*\n)+", shown).group().replace("\\\n", " ")
    return [line.strip() for line in block.splitlines()]


TRIED_ELSEWHERE = (
    *("demo", "serve", "publish", "subscribe", "unsubscribe"),
    *("consumers", "status", "token", "precompile"),
)
"""On Spark, with a server that runs, or (precompile) before all tests."""


@pytest.mark.parametrize(
    "name", [one.name for one in app.registered_commands if one.name not in TRIED_ELSEWHERE]
)
def test_the_examples_of_every_command_run(cli, data, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "120")
    shown = examples(cli(name, "--help").stdout)
    assert shown
    for line in shown:
        before, _, command = line.rpartition("| ")
        stdin = (data / before.split()[1]).read_bytes() if before else b""
        program, *arguments = shlex.split(command)
        assert program == "rangecast"
        cli(*arguments, stdin=stdin)


@pytest.mark.parametrize(
    "names",
    [
        *((name,) for name in TRIED_ELSEWHERE),
        *(("log", name) for name in ("check", "dump", "export", "verify", "repair")),
        *(("worker", name) for name in ("run", "verify")),
        ("pipeline", "run"),
        ("pipeline", "backfill"),
        ("generate", "market"),
    ],
)
def test_what_runs_on_spark_and_groups_have_examples_too(cli, names):
    for line in examples(cli(*names, "--help").stdout):
        assert " ".join(["rangecast", *names]) in line
