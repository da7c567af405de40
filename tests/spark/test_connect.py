"""Spark Connect: a server of its own, and clients that reach it by gRPC alone."""

import subprocess
import sys

import pyspark.pipelines.cli
import pytest

from tests.support.server.servers import ROOT, connect_server, environment

pytestmark = [pytest.mark.spark, pytest.mark.process]

CODE = """
import sys
from pathlib import Path
import pytest
from pyspark.errors import PySparkException
from rangecast.errors import RejectedRowError, UsageError
from rangecast.spark import (
    TopKLists, current_session, get_session, match, prepare_match, run_stream
)
from tests.support.everywhere import CHECKS, arrays, expected, frames, run, space

session = get_session(sys.argv[1])
folder = Path(sys.argv[2])
assert current_session() is session
assert get_session() is session
run(session, CHECKS)

events, subscriptions = frames(session)
events.write.parquet(str(folder / "events"))
stream = session.readStream.schema(events.schema).parquet(str(folder / "events"))
answers = match(stream, prepare_match(session, subscriptions, space()), space(), output="arrays")
writer = answers.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
writer.trigger(availableNow=True).format("parquet").start(str(folder / "found")).awaitTermination()
assert arrays(session.read.parquet(str(folder / "found"))) == expected()

with pytest.raises(UsageError, match="a stream with steps and sinks runs in part"):
    run_stream(stream, [], checkpoint=folder)
with pytest.raises(UsageError, match="TopKLists runs in part on the driver"):
    TopKLists(session, folder / "lists")

columns = "id long, price string, name string, size double"
wrong = session.createDataFrame([(7, "x", "ann", 1.0)], columns)
with pytest.raises(RejectedRowError, match="^event 7, column 'price': 'x' is not a num") as error:
    match(wrong, prepare_match(session, subscriptions, space()), space()).collect()
assert isinstance(error.value.__cause__, PySparkException), error.value.__cause__

searches = {}
for row in session.read.table("alerts").collect():
    searches.setdefault(row["search"], set()).add(row["id"])
assert searches == {"cheap": set(range(10)), "tech": set(range(0, 100, 3))}
session.stop()
assert current_session() is None
"""


def test_every_step_is_right_on_connect_and_what_needs_a_driver_is_rejected(tmp_path):
    """Also a stream, and the example of a declarative pipeline."""
    example = ROOT / "examples" / "declarative" / "spark-pipeline.yml"
    with connect_server(tmp_path) as url:
        ours = environment(RANGECAST_CACHE=str(tmp_path / "clients-cache"), SPARK_REMOTE=url)
        for command in (
            [pyspark.pipelines.cli.__file__, "run", "--spec", str(example)],
            ["-c", CODE, url, str(tmp_path)],
        ):
            done = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env=ours,
                capture_output=True,
                text=True,
                timeout=1800,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            print(done.stdout)
    shipped = [path.name for path in (tmp_path / "servers-cache" / "snapshots").iterdir()]
    assert shipped, "the workers found what was shipped somewhere else"
