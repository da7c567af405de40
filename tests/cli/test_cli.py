"""The shell, as a user runs it: exit codes, what goes where, and no traceback."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rangecast.match.choose import INDEXES
from rangecast.match.scan import Scan
from rangecast.model.encoding.events import EventFile
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.model.space import Space
from rangecast.rank.scan import Scan as RankScan

COMMAND = [str(Path(sys.executable).with_name("rangecast"))]

SPACE = """
[[attribute]]
name = "price"
type = "number"
[[attribute]]
name = "sector"
type = "category"
values = ["tech", "energy"]
"""


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def data(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "subs.csv").write_text(
        "id,filter,score,weight_price\n"
        "cheap,price < 10,1,2\n"
        "tech,sector = 'tech',3,1\n"
        "both,price < 20 and sector = 'tech',2,1\n"
        "any,true,0,1\n"
    )
    (tmp_path / "events.csv").write_text("id,price,sector\ne1,5,tech\ne2,15,tech\ne3,,energy\n")
    return tmp_path


FILES = ("events.csv", "subs.csv", "--space", "space.toml")


def test_match_writes_pairs_to_stdout_and_the_summary_to_stderr(cli, data):
    done = cli("match", *FILES)
    assert done.stdout == (
        "event,subscription\ne1,cheap\ne1,tech\ne1,both\ne1,any\ne2,tech\ne2,both\ne2,any\ne3,any\n"
    )
    assert "3 events against 4 subscriptions: 8 rows" in done.stderr


@pytest.mark.parametrize("index", ["auto", *INDEXES])
def test_every_index_gives_the_same_file(cli, data, index):
    done = cli("match", *FILES, "--index", index, "--threads", 2, "--explain-plan")
    assert done.stdout == cli("match", *FILES, "--index", "scan").stdout
    assert f"plan: {'slabs' if index == 'auto' else index}: " in done.stderr


def test_rank_exact_and_relaxed(cli, data):
    done = cli("rank", *FILES, "-k", 2, "-o", "-", "--quiet")
    assert done.stdout.splitlines() == [
        "event,rank,subscription,score",
        "e1,1,tech,3",
        "e1,2,both,2",
        "e2,1,tech,3",
        "e2,2,both,2",
        "e3,1,any,0",
    ]
    assert done.stderr == ""
    cli("rank", *FILES, "-k", 2, "--relaxed", "-o", "best.csv")
    assert [list(row.values()) for row in rows_of(data / "best.csv")] == [
        ["e1", "1", "cheap", "2"],
        ["e1", "2", "both", "2"],
        ["e2", "1", "both", "2"],
        ["e2", "2", "tech", "1"],
    ]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
def test_formats_go_by_suffix_and_json_is_for_machines(cli, data, suffix):
    done = cli("match", *FILES, "-o", f"m.{suffix}", "--json")
    facts = json.loads(done.stdout)
    assert (facts["events"], facts["subscriptions"], facts["rows"]) == (3, 4, 8)
    assert (data / f"m.{suffix}").exists()
    assert done.stderr == ""
    done = cli("match", *FILES, "--json")
    assert done.stdout.startswith("event,subscription\n")
    assert json.loads(done.stderr)["rows"] == 8


def test_the_market_example_end_to_end(cli, tmp_path):
    cli(
        "generate",
        "market",
        "--subscriptions",
        300,
        "--events",
        50,
        "--seed",
        1,
        "-o",
        "data/",
    )
    files = ("data/events.parquet", "data/subscriptions.parquet", "--space", "data/space.toml")
    cli("match", *files, "-o", "matches.parquet")
    cli("rank", *files, "-k", 20, "--relaxed", "-o", "best.csv")
    space = Space.load(tmp_path / "data/space.toml")
    boxes = read_subscriptions(tmp_path / "data/subscriptions.parquet", space)
    (events,) = EventFile(tmp_path / "data/events.parquet", space)
    found = pq.read_table(tmp_path / "matches.parquet").to_pydict()
    pairs = set(zip(found["event"], found["subscription"], strict=True))
    matches = Scan(boxes).match(events.points)
    assert len(pairs) == len(found["event"]) == len(matches.rows) > 0
    ids, names = events.ids.to_pylist(), boxes.ids.to_pylist()
    assert pairs == {
        (ids[e], names[r])
        for e, r in zip(matches.events.tolist(), matches.rows.tolist(), strict=True)
    }
    best = rows_of(tmp_path / "best.csv")
    first = RankScan(boxes).relaxed(events.points[0], 20)
    assert [row["subscription"] for row in best[:20]] == [names[r] for r in first.rows]
    assert [float(row["score"]) for row in best[:20]] == first.scores.tolist()


def test_why_explains_and_concludes(cli, data):
    def ask(event, one, *more, **how):
        return cli("why", event, "subs.csv", one, "--space", "space.toml", *more, **how)

    done = ask('{"price": 25, "sector": "tech"}', "both")
    assert "price < 20" in done.stdout
    assert "OUT" in done.stdout
    assert "too high" in done.stdout
    assert "both does not match: price < 20 fails at 25." in done.stdout
    done = ask('{"price": 5, "sector": "tech"}', "both", "--json")
    assert json.loads(done.stdout)["matches"] is True
    assert "fails at (missing)" in ask("{}", "cheap").stdout
    assert "cheap matches" in ask("-", "cheap", stdin=b'{"price": 5}').stdout
    assert "did you mean 'cheap'" in ask("{}", "chep", code=2).stderr
    assert "the event is not JSON" in ask("{price}", "cheap", code=2).stderr
    assert "an event must be a JSON object" in ask("[1]", "cheap", code=2).stderr


def test_why_not_shows_what_comes_nearest(cli, data):
    given = ("why-not", '{"price": 25, "sector": "tech"}', "subs.csv", "--space", "space.toml")
    lines = cli(*given).stdout.splitlines()
    assert "cheap does not match: price < 10 fails at 25." in lines
    assert "both does not match: price < 20 fails at 25." in lines
    assert not any(line.startswith("any ") for line in lines), "it matches"
    assert cli(*given, "-k", "1").stdout.splitlines() == lines[:1]
    facts = json.loads(cli(*given, "--json").stdout)
    assert [one["verdict"] for one in facts["near"]] == lines
    said = cli("why-not", "e1", *given[2:], "--events", "events.csv").stdout
    assert said == "Every subscription matches this event.\n"
    assert "--row requires a file of events" in cli(*given, "--row", code=2).stderr


def test_count_is_the_number_of_matches(cli, data):
    matches = list(csv.DictReader(cli("match", *FILES).stdout.splitlines()))
    counts = list(csv.DictReader(cli("count", *FILES).stdout.splitlines()))
    assert {row["event"]: int(row["count"]) for row in counts} == {
        row["event"]: sum(match["event"] == row["event"] for match in matches) for row in counts
    }
    assert len(counts) == len(rows_of(data / "events.csv")), "those without matches, too"
    facts = json.loads(cli("count", *FILES, "-o", "counts.csv", "--json").stdout)
    assert facts["matches"] == len(matches)


def test_hints_name_options_as_the_shell_spells_them(cli, data):
    given = ("match", "more.csv", *FILES[1:])
    (data / "more.csv").write_text("id,price,sector,user\n1,2,tech,ann\n")
    said = cli(*given, code=2).stderr
    assert said.endswith("hint: rename it, or leave it out; --ignore-unknown ignores it\n")
    assert cli(*given, "--ignore-unknown").stdout
    (data / "more.csv").write_text("id,prise,sector\n1,2,tech\n")
    said = cli(*given, code=2).stderr
    assert "did you mean 'price'?" in said
    hint = "hint: rename it to 'price'; if it isn't a typo, --ignore-unknown ignores it\n"
    assert said.endswith(hint), "the name that was meant comes first"


def test_a_pattern_in_quotes_is_read_and_never_written_over(cli, data):
    (data / "events2.csv").write_text("id,price,sector\ne4,5,energy\n")
    done = cli("match", "events*.csv", *FILES[1:])
    assert done.stdout.endswith("e3,any\ne4,cheap\ne4,any\n")
    said = cli("match", "events*.csv", *FILES[1:], "-o", "events2.csv", code=2).stderr
    assert "events2.csv: is an input of this command" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("match", "nowhere.csv", "subs.csv", "--space", "space.toml"), "nowhere.csv"),
        (("match", "events.csv", "subs.csv", "--space", "no.toml"), "no.toml"),
        (("match", *FILES, "-o", "m.txt"), "unknown format"),
        (("match", *FILES, "-o", "no/such/m.csv"), "can't be written"),
        (("match", *FILES, "-o", "events.csv"), "is an input"),
        (("match", *FILES, "-o", "m.csv", "--rejected", "m.csv"), "for two outputs"),
        (("match", "events.csv"), "Missing argument"),
        (
            ("rank", *FILES, "-k", "0"),
            "'--top' / '-k': must be a whole number, at least 1; given: 0\n",
        ),
        (("rank", *FILES, "-k", "2.5"), "must be a whole number, at least 1; given: 2.5\n"),
        (
            ("merge", *FILES[1:], "--max-ranges", "two"),
            "must be a whole number, at least 1; given: two\n",
        ),
        (("match", *FILES, "--threads", "two"), "--threads must be a whole number, at least 1, or"),
        (("match", *FILES, "--threads", "0"), "or auto; given: 0\n"),
        (("generate", "market", "--events", "1e3"), "must be a whole number; given: 1e3\n"),
        (("notify", "a", "b", "c", "-k", "1", "--epsilon", "x"), "must be a number; given: x\n"),
        (("generate", "markt"), "did you mean 'market'"),
        (("generate", "market", "--evnts", "5"), "--events"),
        (("match", *FILES, "--index", "slab"), "no index 'slab': did you mean 'slabs'?"),
        (
            ("match", *FILES, "--index", "vcr:sides=4"),
            "has no option 'sides'; did you mean 'side'?",
        ),
        (
            ("verify", *FILES[:2], "-", *FILES[2:], "--index", "vcr:side=5"),
            "takes one or two powers",
        ),
        (("mach",), "No such command"),
    ],
)
def test_a_users_mistake_exits_with_2_and_says_what_to_do(cli, data, arguments, message):
    assert message in cli(*arguments, code=2).stderr


def test_a_rejected_row_stops_the_run_or_is_written(cli, data):
    (data / "events.csv").write_text("id,price,sector\ne1,5,tech\ne2,x,tech\ne3,,oil\n")
    done = cli("match", *FILES, "-o", "m.csv", code=2)
    for part in ("events.csv", "row 1", "'price'", "given: x", "--rejected"):
        assert part in done.stderr
    assert not (data / "m.csv").exists()
    assert not list(data.glob(".*partial"))
    done = cli("match", *FILES, "-o", "m.csv", "--rejected", "bad.csv")
    assert "1 event against 4 subscriptions" in done.stderr
    assert "2 rejected rows in bad.csv" in done.stderr
    assert [row["row"] for row in rows_of(data / "bad.csv")] == ["1", "2"]


def test_a_missing_attribute_is_a_warning(cli, data):
    (data / "events.csv").write_text("id,price\ne1,5\n")
    done = cli("match", *FILES)
    assert "warning: events.csv has no column for 'sector'" in done.stderr
    assert done.stdout.splitlines()[1:] == ["e1,cheap", "e1,any"]


def test_json_errors_are_json(cli, data):
    done = cli("match", *FILES, "-o", "m.txt", "--json", code=2)
    assert "unknown format" in json.loads(done.stderr)["error"]


def test_version_help_and_list(cli, tmp_path):
    assert cli("--version").stdout.strip()
    assert "generate" in cli("--help").stdout
    assert "market" in cli("generate", "--help").stdout


@pytest.mark.process
def test_output_into_a_closed_pipe_is_no_fault(data):
    many = "id,price\n" + "".join(f"{i},5\n" for i in range(50_000))
    (data / "events.csv").write_text(many)
    shell = f"{COMMAND[0]} match {' '.join(FILES)} --quiet | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=data, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "event,subscription\n", "")


NOTIFY = {
    "objects.csv": "id,position,value\na,1,5\nb,2,3\nc,x,1\n",
    "updates.csv": "id,value\nb,9\na,x\n",
    "interests.csv": "id,position_lo,position_hi\n0,0,5\n",
}


@pytest.mark.parametrize(
    ("command", "rejected"),
    [
        (("match", *FILES), 2),
        (("rank", *FILES), 2),
        (("cover", *FILES[1:]), 1),
        (("merge", *FILES[1:], "--events", "events.csv", "--max-ranges", 9), 2),
        (("notify", *NOTIFY), 2),
        (("verify", "events.csv", "subs.csv", "m.csv", *FILES[2:]), 2),
        (("report", "events.csv", "subs.csv", "m.csv", *FILES[2:], "-o", "page.html"), 2),
        (("why", "{}", "subs.csv", "any", *FILES[2:]), 1),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else None,
)
def test_every_command_tells_of_time_and_rejected_rows_alike(cli, data, command, rejected):
    for name, text in NOTIFY.items():
        (data / name).write_text(text)
    with (data / "events.csv").open("a") as events, (data / "subs.csv").open("a") as subscriptions:
        events.write("e4,dear,tech\n")
        subscriptions.write("bad,price <,0,1\n")
    cli("match", *FILES, "--rejected", "bad.csv", "-o", "m.csv")
    assert "or write rejected rows to a file with --rejected FILE" in cli(*command, code=2).stderr
    aside = ("--rejected", "aside.csv")
    done = cli(*command, *aside, "--json")
    facts = json.loads((done.stderr or done.stdout).splitlines()[-1])
    assert {"seconds", "compiling", "output", "warnings"} <= facts.keys()
    assert facts["rejected"] == len(rows_of(data / "aside.csv")) == rejected
    said = cli(*command, *aside).stderr
    assert said.endswith(f"; {rejected} rejected row{'s' * (rejected > 1)} in aside.csv\n")
    assert re.search(r" in \d+\.\d\d s\b", said)
    assert cli(*command, *aside, "--quiet").stderr == ""
