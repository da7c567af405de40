"""Every step, mode, sink, form and odd batch of a pipeline, compared with the local engine.

A cell of the matrix is a pipeline: one mode and one situation, with all steps, each of which writes
to one kind of sink. The sinks turn from cell to cell, so that all cells together have every
combination; the normal suite runs a few of them, `make spark-matrix` all.
"""

import random
import subprocess
import sys
from itertools import product

import pytest

from rangecast.errors import UsageError
from rangecast.spark import Delta, Folder, Pipeline, match
from rangecast.spark.stream.kafka import Topic
from tests.support.server.servers import CONNECTOR, ROOT, environment, jars
from tests.support.spark_matrix import SINKS, SITUATIONS, SPACE, Cell, check_cell

CELLS = [Cell(*cell) for cell in product(("batch", "stream"), SITUATIONS, range(len(SINKS)))]
SAMPLE = random.Random(3).sample(CELLS, 3)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, id=str(cell), marks=[] if cell in SAMPLE else [pytest.mark.soak])
        for cell in CELLS
    ],
)
def test_a_cell_gives_what_the_local_engine_gives(spark, tmp_path, cell):
    check_cell(spark, tmp_path, cell)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.process
@pytest.mark.xdist_group("kafka")
def test_cells_between_topics_give_what_the_local_engine_gives(tmp_path, kafka):
    """In a process of its own, as Spark's class path is fixed when it starts."""
    connector = ",".join(map(str, jars("connector", *CONNECTOR)))
    command = ["-m", "tests.support.spark_matrix", tmp_path, kafka, connector]
    done = subprocess.run(
        [sys.executable, *command],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]


UNKNOWN_TO_ARROW = {
    "make_ym_interval(1, 2)": "interval year to month",
    "array(make_interval(1, 2))": r"array<interval>",
}


def test_a_column_that_spark_does_not_hand_to_python_is_not_kept(spark):
    subscriptions = spark.createDataFrame([("a", "price > 3")], "id string, filter string")
    for made, kind in UNKNOWN_TO_ARROW.items():
        events = spark.range(1).selectExpr("id", "1.0 price", "'x' name", f"{made} as odd")
        with pytest.raises(UsageError, match=f"'odd' of events has the type {kind}.*\n.*\n.*cast"):
            match(events, subscriptions, SPACE, keep=["odd"])


def test_a_sink_rejects_types_that_it_cannot_hold(spark, tmp_path):
    def columns(made):
        return spark.range(1).selectExpr("id as event", f"{made} as odd").schema

    delta, topic = Delta(tmp_path / "t"), Topic("localhost:9", "t")
    for made, kind in {
        "parse_json('1')": "variant",
        "map('a', make_dt_interval(1))": "map<string,interval day to second>",
    }.items():
        with pytest.raises(UsageError, match=f"'odd' has the type {kind}.*\n.*\n  hint: make a te"):
            delta.check_columns(columns(made))
    shape = columns("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')")
    for sink in (delta, topic, Folder(tmp_path / "f")):
        with pytest.raises(UsageError, match="the type geometry"):
            sink.check_columns(shape)
    with pytest.raises(UsageError, match="no column 'object' to be the key\n  expected: one of ev"):
        Topic("localhost:9", "t", key="object").check_columns(shape)


def test_rows_of_sets_are_rejected_before_the_answers_of_the_same_job_are_written(spark, tmp_path):
    (tmp_path / "space.toml").write_text(SPACE.to_toml())
    (tmp_path / "subs.csv").write_text("id,filter\na,price > 3\n")
    (tmp_path / "events.csv").write_text("id,price,name\n1,5,x\n")
    (tmp_path / "p.toml").write_text(
        'mode = "batch"\nspace = "space.toml"\n'
        '[[source]]\ntype = "files"\nformat = "csv"\npath = "events.csv"\n'
        '[[subscriptions]]\nfile = "subs.csv"\n'
        '[[step]]\ntype = "match"\nsubscriptions = "subscriptions"\n'
        '[[step]]\ntype = "merge"\nattributes = ["price"]\n'
        '[[sink]]\ninput = "match"\ntype = "parquet"\npath = "out"\n'
        '[[sink]]\ninput = "merge"\ntype = "parquet"\npath = "union"\npartition_by = ["price"]\n'
    )
    with pytest.raises(UsageError, match="partition_by: the rows lack the columns 'price'"):
        Pipeline.load(tmp_path / "p.toml").run(spark)
    assert not (tmp_path / "out").exists()
