"""Spark Connect: a server of its own, and clients that reach it by gRPC alone."""

import signal
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
from rangecast.errors import RejectedRowError
from rangecast.spark import current_session, get_session, match, prepare_match
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


@pytest.fixture(scope="module")
def connect(tmp_path_factory):
    """A server: its URL, its folder, and a function that runs a client, which it can't see into."""
    folder = tmp_path_factory.mktemp("connect")
    hidden = folder / "client"
    (hidden / "tmp").mkdir(parents=True)

    def run_client(*arguments, code=0):
        caches = {"RANGECAST_CACHE": str(hidden / "cache"), "TMPDIR": str(hidden / "tmp")}
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=ROOT,
            env=environment(SPARK_REMOTE=url, **caches),
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == code, done.stdout + done.stderr

    with connect_server(folder, hidden) as url:
        yield url, folder, run_client


def test_every_step_is_right_on_connect(connect):
    """Also a stream, and the example of a declarative pipeline."""
    url, folder, run_client = connect
    example = ROOT / "examples" / "declarative" / "spark-pipeline.yml"
    run_client(pyspark.pipelines.cli.__file__, "run", "--spec", example)
    run_client("-c", CODE, url, folder)
    shipped = [path.name for path in (folder / "servers-cache" / "snapshots").iterdir()]
    assert shipped, "the workers found what was shipped somewhere else"


@pytest.mark.soak
def test_pipelines_run_on_connect_and_outlive_their_clients(connect):
    """A batch job; a stream whose client is killed; functions and lists of the client."""
    url, folder, run_client = connect
    volume = folder / "volume"
    volume.mkdir()
    module = ("-m", "tests.support.connect_pipelines", url, volume)
    run_client(*module, "first", code=-signal.SIGKILL)
    run_client(*module, "second")
