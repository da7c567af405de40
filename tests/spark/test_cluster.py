"""A standalone cluster of separate processes, whose workers don't see the driver's disk."""

import subprocess
import sys

import pytest

from tests.support.server.servers import ROOT, cluster, environment

pytestmark = [pytest.mark.spark, pytest.mark.process]

CODE = """
import sys
import pytest
from rangecast.errors import FileError
from rangecast.spark import TopKLists, get_session
from tests.support.everywhere import run
from tests.support.server.servers import LIGHT

session = get_session(sys.argv[1], conf={
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": LIGHT,
    "spark.executor.extraJavaOptions": LIGHT,
    "spark.executor.memory": "512m",
    "spark.executor.cores": 1,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": 2,
    "spark.default.parallelism": 2,
})
run(session, ["match", "shards", "merge"])
objects = session.createDataFrame(
    [(1, 0.5, 1.0), (2, 0.7, 2.0)], "id bigint, position double, value double"
)
interests = session.createDataFrame(
    [(7, 0.0, 1.0)], "id bigint, position_lo double, position_hi double"
)
with pytest.raises(FileError, match="all workers mount"):
    TopKLists(session, sys.argv[2], objects, interests, k=1)
assert len(session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1 == 2
session.stop()
"""


def test_steps_on_workers_that_do_not_see_the_drivers_disk(tmp_path):
    hidden = tmp_path / "driver"
    (hidden / "tmp").mkdir(parents=True)
    with cluster(tmp_path, hidden) as url:
        done = subprocess.run(
            [sys.executable, "-c", CODE, url, str(hidden / "lists")],
            cwd=ROOT,
            env=environment(RANGECAST_CACHE=str(hidden / "cache"), TMPDIR=str(hidden / "tmp")),
            capture_output=True,
            text=True,
            timeout=1800,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (hidden / "cache" / "snapshots").exists(), "a worker used the driver's folder"
