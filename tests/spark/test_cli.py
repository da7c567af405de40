"""Commands with `--engine spark` write what the local engine writes, to the last row."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.cli.shared.spark_session import spark_session, with_cause
from rangecast.errors import FileError, RejectedRowError, UsageError
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.io.rejected import CollectedRows
from rangecast.model.space import Space
from rangecast.notify.board import Board
from rangecast.notify.line.tables import LineTables
from rangecast.spark.steps.match import match as on_spark
from rangecast.spark.steps.notify.verify_lists import SentMessages, mismatches
from rangecast.workloads import generate

SPACE = """
[[attribute]]
name = "x"
type = "number"

[[attribute]]
name = "s"
type = "string"
"""


FILES = ("events.csv", "subscriptions.csv", "--space", "space.toml")


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(2)
    words = ["ä", "b", "", "d,e"]
    (tmp_path / "space.toml").write_text(SPACE)
    lines = ["id,x,s"]
    for row, (x, s) in enumerate(zip(random.random(300), random.integers(0, 5, 300), strict=True)):
        word = f'"{words[s]}"' if s < 4 else ""
        lines.append(f"e{row},{'oops' if row % 97 == 5 else x:},{word}")
    lines.append("e7,0.5,b")
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    filters = [f"x < {x:.3f} or s = '{words[i % 4]}'" for i, x in enumerate(random.random(200))]
    subscriptions = ["id,filter", *(f'"{200 - i}","{text}"' for i, text in enumerate(filters))]
    (tmp_path / "subscriptions.csv").write_text("\n".join(subscriptions) + "\n")
    return FILES


def by_both(cli, folder, command, files, suffix, *more):
    """Return what a command writes, with its rejected rows; both engines must agree."""
    out = []
    for engine in ("local", "spark"):
        result, bad = f"{engine}.{suffix}", f"{engine}-bad.csv"
        given = ("-o", result, "--rejected", bad, "--engine", engine, "--quiet")
        cli(command, *files, *given, *more)
        is_parquet = suffix == "parquet"
        rows = pq.read_table(folder / result) if is_parquet else (folder / result).read_text()
        out.append((rows, (folder / bad).read_bytes()))
    assert out[0] == out[1]
    return out[0]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_the_same_result(cli, spark, files, tmp_path, suffix):
    rows, bad = by_both(cli, tmp_path, "match", files, suffix)
    assert len(rows) > 1000
    assert bad.count(b"\n") == 6


def test_the_same_redundant_ones_and_the_same_settings(cli, spark, files, tmp_path):
    with (tmp_path / "subscriptions.csv").open("a") as file:
        file.write("bad,x < word\n")
    rows, bad = by_both(cli, tmp_path, "cover", files[1:], "csv")
    assert rows.count("\n") == 201 > rows.count(",\n") > 1
    assert bad.count(b"subscriptions.csv,200,filter,") == 1
    more = ("--max-ranges", 20, "--events", "events.csv", "--max-attributes", 2)
    rows, bad = by_both(cli, tmp_path, "merge", files[1:], "csv", *more)
    assert rows.count("true\n") == 1
    assert bad.count(b"subscriptions.csv,200,filter,") == 1
    assert bad.count(b"events.csv,") == 5


def test_the_plan_is_explained(cli, spark, files):
    given = ("--engine", "spark", "-o", "out.csv", "--explain-plan", "--rejected", "bad.csv")
    for command in (("match",), ("rank", "--relaxed")):
        said = cli(*command, *files, *given).stderr
        assert "subscriptions: 200\nstructure: slabs (" in said
        assert "shards: 1, " in said
        assert "an event touches: 1.0 shards (" in said


def test_a_rejected_row_ends_it_as_it_does_locally(cli, spark, files):
    done = cli("match", *files, "-o", "out.csv", "--engine", "spark", "-q", code=2)
    assert "(row 300, counted from 0)" in done.stderr


@pytest.fixture
def timed(tmp_path):
    """Some seconds of events with scored subscriptions; many scores are equal."""
    random = np.random.default_rng(4)
    (tmp_path / "space.toml").write_text(SPACE + '[[attribute]]\nname = "at"\ntype = "timestamp"\n')
    lines = ["id,x,s,at"]
    for row, x in enumerate(random.random(400)):
        at = f"2026-01-01T00:00:{row // 20:02}.{row % 20:02}"
        lines.append(f"e{row},{'oops' if row % 97 == 5 else x},{'abc'[row % 3]},{at}")
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    lines = ["id,filter,score,weight_x"]
    for row, x in enumerate(random.random(150)):
        text = f"x < {x:.3f} and s != '{'abc'[row % 3]}'"
        lines.append(f"{150 - row},{text},{row % 5},{row % 3}")
    (tmp_path / "subscriptions.csv").write_text("\n".join(lines) + "\n")
    return FILES


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
@pytest.mark.parametrize("limit", [(), ("-k", 3), ("--max-per-second", 40)])
def test_the_same_ranks(cli, spark, timed, tmp_path, limit, relaxed, suffix):
    given = ["-k", 7, *limit, *(["--relaxed"] * relaxed)]
    found, bad = by_both(cli, tmp_path, "rank", timed, suffix, *given)
    rows = len(found) if suffix == "parquet" else found.count("\n") - 1
    assert {(): 2000, ("-k", 3): 1000}.get(limit, 700) < rows
    assert rows <= {(): 7 * 395, ("-k", 3): 3 * 395}.get(limit, 40 * 20)
    assert bad.count(b"\n") == 6


def test_ranks_of_no_events_and_mistakes(cli, spark, timed, tmp_path):
    (tmp_path / "none.csv").write_text("id\n")
    on_spark = ("--engine", "spark", "-o", "out.csv")
    for limit in ([], ["-k", "3"], ["--max-per-second", "3"]):
        cli("rank", "none.csv", *timed[1:], *on_spark, *limit)
        assert (tmp_path / "out.csv").read_text() == "event,rank,subscription,score\n"
    assert "(row 5, counted from 0)" in cli("rank", *timed, *on_spark, code=2).stderr


def test_an_error_of_ours_in_a_worker_is_raised_again_as_what_it_is(spark, files, tmp_path):
    space = Space.load(tmp_path / "space.toml")
    quotes = spark.read.csv(str(tmp_path / "events.csv"), header=True)
    boxes = encode_subscriptions(pa.table({"id": ["a"], "filter": ["x < 1"]}), space)
    with (
        pytest.raises(
            RejectedRowError, match=r"^event 'e5', column 'x': .*\n  given: oops\n  hint: "
        ),
        spark_session(None) as session,
    ):
        on_spark(quotes, boxes, space).collect()
    assert session is spark  # and it isn't stopped


def test_a_fault_in_a_worker_is_told_by_its_reason(spark):
    def fail(batches):
        raise ValueError("the reason")

    asked = {
        r"ValueError: the reason": lambda: spark.range(1).mapInArrow(fail, "id long").collect(),
        r"no_such_column": lambda: spark.range(1).select("no_such_column"),
        r"IndexOutOfBounds": lambda: spark.sparkContext._jvm.java.util.ArrayList().get(5),
    }
    for reason, ask in asked.items():
        with pytest.raises(UsageError, match=f"(?s)^Spark: .*{reason}"), spark_session(None):
            ask()


def test_a_message_of_spark_with_an_error_of_ours():
    text = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Traceback "
        '(most recent call last):\n  File "a.py", line 1, in b\n    raise\n'
        "rangecast.errors.FileError: x.csv: is gone\n  hint: put it back\n\n\tat a.b(C.java:1)\n"
    )
    error = with_cause(text)
    assert type(error) is FileError
    assert str(error) == "x.csv: is gone\n  hint: put it back"


def test_the_first_line_of_another_error_of_spark_is_what_happened():
    called = "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: "
    error = with_cause(f"{called}[FAILED_READ_FILE] while reading a.csv\n\tat a.b(C.java:1)\n")
    assert str(error) == "Spark: [FAILED_READ_FILE] while reading a.csv"


def test_every_structure_and_no_events(cli, spark, tmp_path):
    made = generate("wide", subscriptions=300, events=50, seed=3)
    for name in ("events", "subscriptions"):
        pq.write_table(made.tables[name], tmp_path / f"{name}.parquet")
    made.space.save(tmp_path / "space.toml")
    rest = ("subscriptions.parquet", "--space", "space.toml")
    for index in ("rtree", "vcr:side=4,hash"):
        by_both(cli, tmp_path, "match", ("events.parquet", *rest), "csv", "--index", index)
    (tmp_path / "none.csv").write_text("id\n")
    cli("match", "none.csv", *rest, "-o", "nothing.csv", "--engine", "spark")
    assert (tmp_path / "nothing.csv").read_text() == "event,subscription\n"


@pytest.fixture
def board(tmp_path):
    """Objects that change, come and go, and interests of which some want fewer."""
    random = np.random.default_rng(6)
    lines = [f"o{row},{x:.2f},{row % 7}" for row, x in enumerate(random.random(80))]
    (tmp_path / "objects.csv").write_text("\n".join(["id,position,value", *lines]) + "\n")
    lines = [f"o{one},{'' if one % 9 == 0 else one % 5}," for one in random.permutation(80)]
    lines += [f"n{row},{row % 4},{x:.2f}" for row, x in enumerate(random.random(40))]
    (tmp_path / "updates.csv").write_text(
        "\n".join(["id,value,position", *lines, "o999,3,"]) + "\n"
    )
    ends = np.sort(random.random((60, 2)), axis=1).round(2)
    lines = [f"{row},{lo},{hi},{1 + row % 4}" for row, (lo, hi) in enumerate(ends)]
    (tmp_path / "interests.csv").write_text(
        "\n".join(["id,position_lo,position_hi,k", *lines]) + "\n"
    )
    return "objects.csv", "updates.csv", "interests.csv"


@pytest.mark.parametrize("algorithm", ["sparse", "batch-dense"])
def test_the_same_messages_and_the_workers_check_them(cli, spark, board, tmp_path, algorithm):
    given = ("--verify", "-k", 4, "--algorithm", algorithm, "--descending")
    messages, bad = by_both(cli, tmp_path, "notify", board, "csv", *given)
    assert messages.count("\n") > 50
    assert bad.count(b"updates.csv,120,") == 1
    facts = cli("notify", *board, *given, "--engine", "spark", "--rejected", "b.csv", "--json")
    assert '"mismatches": 0' in facts.stderr


def test_the_workers_find_lists_that_lack_a_message(spark, board, tmp_path):
    tables = LineTables()
    objects, changes, interests = (tables.file_rows(tmp_path / name) for name in board)
    things, wanted = tables.read_objects(objects), tables.read_interests(interests)
    table = Board(4, objects=things, interests=wanted)
    bad = CollectedRows()
    for _, some in tables.read_updates(changes, pa.string(), table.objects.__contains__, bad):
        sent = table.update_many(some)
    right = SentMessages(None, 4, False, things, table.table(), wanted, [sent])
    assert mismatches(spark, right) == 0
    lost = SentMessages(None, 4, False, things, table.table(), wanted, [])
    assert mismatches(spark, lost) == lost.mismatches(0, 60) > 10


def test_workers_verify_lists_over_a_space(cli, spark, tmp_path):
    attribute = '[[attribute]]\nname = "{}"\ntype = "number"\n'
    (tmp_path / "space.toml").write_text(attribute.format("a") + attribute.format("b"))
    random = np.random.default_rng(7)
    lines = [
        f"o{row},{a:.1f},{b:.1f},{row % 7}" for row, (a, b) in enumerate(random.random((60, 2)))
    ]
    (tmp_path / "o.csv").write_text("\n".join(["id,a,b,value", *lines]) + "\n")
    lines = [
        f"o{row % 60},{'' if row % 11 == 5 else row % 5},{a:.1f},"
        for row, a in enumerate(random.random(55))
    ]
    (tmp_path / "u.csv").write_text("\n".join(["id,value,a,b", *lines]) + "\n")
    lines = [
        f"{row},a < {lo:.1f} or b >= {hi:.1f}"
        for row, (lo, hi) in enumerate(random.random((30, 2)))
    ]
    (tmp_path / "i.csv").write_text("\n".join(["id,filter", *lines]) + "\n")
    given = ("--space", "space.toml", "--verify", "-k", 3)
    messages, _ = by_both(cli, tmp_path, "notify", ("o.csv", "u.csv", "i.csv"), "csv", *given)
    assert messages.count("\n") > 20


def test_messages_are_made_by_one_process(cli, spark, board):
    said = cli("notify", *board, "--engine", "spark", code=2).stderr
    assert "--engine spark has no effect here: one process computes the messages" in said
    said = cli("notify", *board, "--master", "local[1]", code=2).stderr
    assert "--engine is local" in said
