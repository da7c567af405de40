"""A standalone cluster of separate processes, whose workers don't see the driver's disk."""

import re
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.server.servers import LIGHT, ROOT, SPARK_HOME, cluster, environment

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.soak]

CODE = """
import os
import signal
import sys
from pathlib import Path
import pytest
from pyspark import TaskContext
from rangecast.errors import FileError
from rangecast.spark import FixedSet, Folder, MatchStep, TopKLists, get_session, match, run_stream
from rangecast.store.commits import read_committed
from tests.support.everywhere import arrays, expected, frames, run, space
from tests.support.server.servers import LIGHT


def parent(process):
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))


def deadly(batches):
    # The first attempt at the first events kills its executor.
    for batch in batches:
        yield batch
        task = TaskContext.get()
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            os.kill(parent(parent(os.getpid())), signal.SIGKILL)  # worker, its daemon, the JVM


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

shared = Path(sys.argv[3])
events, subscriptions = frames(session)
killed = events.mapInArrow(deadly, events.schema)
assert arrays(match(killed, subscriptions, space(), output="arrays")) == expected()
events.write.parquet(str(shared / "events"))
stream = session.readStream.schema(events.schema).parquet(str(shared / "events"))
done = []
run_stream(
    stream.mapInArrow(deadly, events.schema),
    [MatchStep(FixedSet(subscriptions, space()), [Folder(shared / "matches")], output="arrays")],
    checkpoint=shared / "checkpoint",
    report=done.append,
)
rows = read_committed(shared / "matches").to_table().to_pylist()
assert {row["event"]: row["subscriptions"] for row in rows} == expected()
assert len(rows) == len(expected()) == sum(one.events for one in done)
session.stop()
"""


def test_steps_on_workers_that_do_not_see_the_drivers_disk(tmp_path):
    """Also jobs during which an executor is killed: no row is lost, and none is there twice."""
    hidden = tmp_path / "driver"
    (hidden / "tmp").mkdir(parents=True)
    shared = tmp_path / "shared"
    shared.mkdir()
    with cluster(tmp_path, hidden) as url:
        done = subprocess.run(
            [sys.executable, "-c", CODE, url, str(hidden / "lists"), str(shared)],
            cwd=ROOT,
            env=environment(RANGECAST_CACHE=str(hidden / "cache"), TMPDIR=str(hidden / "tmp")),
            capture_output=True,
            text=True,
            timeout=1800,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (hidden / "cache" / "snapshots").exists(), "a worker used the driver's folder"


def packed(folder):
    """Return an archive of an environment with rangecast and what it needs, but no PySpark."""
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    shutil.copytree(ROOT / "rangecast", site / "rangecast")
    needed, missing = set(), {"rangecast", "pandas", "py4j"}
    while missing:
        needed |= missing
        wanted = [text for name in missing for text in distribution(name).requires or ()]
        names = {re.split(r"[^\w.-]", text)[0] for text in wanted if "extra ==" not in text}
        missing = {name for name in names if name not in needed and _is_installed(name)}
    for name in needed - {"rangecast"}:
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.exists():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, site / file)
    archive = folder.with_suffix(".tar.gz")  # of a plain .tar Spark loses the permissions
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for path in folder.iterdir():
            tar.add(path, arcname=path.name)
    shutil.rmtree(folder)
    return archive


def _is_installed(name):
    try:
        return distribution(name) is not None
    except ModuleNotFoundError:
        return False


WHERE = """
def where(batches):
    import sys, rangecast, pyarrow
    for batch in batches:
        yield pyarrow.record_batch({"at": [f"{sys.prefix} {rangecast.__file__}"]})


for row in spark.range(2).mapInArrow(where, "at string").collect():
    print("imported", row["at"])
"""


def test_a_packed_environment_by_spark_submit(tmp_path):
    """The job of docs/how-to/spark.md; the workers' own Python has no rangecast."""
    page = (ROOT / "docs" / "how-to" / "spark.md").read_text()
    (job,) = re.findall(r"```text\n(from pyspark.sql import SparkSession\n.*?)```", page, re.DOTALL)
    (tmp_path / "job.py").write_text(job + WHERE)
    hidden = tmp_path / "driver"
    hidden.mkdir()
    archive = packed(tmp_path / "environment")
    settings = {
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": sys.executable,
        "spark.python.daemon.module": "rangecast.spark.daemon",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": LIGHT,
        "spark.driver.extraJavaOptions": LIGHT,
        "spark.ui.enabled": "false",
    }
    with cluster(tmp_path, hidden, PYTHONPATH="") as url:
        submit = [SPARK_HOME / "bin" / "spark-submit", "--master", url]
        submit += ["--archives", f"{archive}#environment"]
        submit += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        done = subprocess.run(
            [*submit, tmp_path / "job.py"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=1800,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    assert f"{sum(range(1, 51)) * 100} matches" in done.stdout
    places = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("imported")]
    assert places
    for prefix, module in places:
        assert prefix.startswith(str(tmp_path / "worker")), "not the Python of the archive"
        assert module.startswith(prefix)
