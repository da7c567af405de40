"""Spark sessions: the only module that starts Spark.

Local by default (`local[*]`), any cluster by its master URL, a Spark Connect server by its `sc://`
URL. Settings, in increasing precedence: the defaults below, those for a local master, and those of
the caller. A session that is already running is used unchanged.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession, is_remote

from rangecast.errors import UsageError
from rangecast.spark.java import java_home, launcher

LOCAL = "local[*]"
_DESCRIPTION = "spark.job.description"

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Kernels work on many events at a time; Spark's own 10,000 is for wider rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    # A table from the driver beyond this is shipped as blocks, not as part of every plan.
    "spark.sql.execution.arrow.localRelationThreshold": "1MB",
    "spark.python.daemon.module": "rangecast.spark.daemon",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = error
logger.stream.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.stream.level = off
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
logger.writer.name = org.apache.spark.sql.execution.datasources.FileFormatWriter
logger.writer.level = off
"""
"""Log settings of Spark: the error of a task is raised in the driver, and isn't printed twice."""


def get_session(
    master: str | None = None, *, app: str = "rangecast", conf: Mapping[str, Any] | None = None
) -> SparkSession:
    """Return the running session, or start one on `master` with rangecast's defaults and `conf`.

    `master` may be the URL of a Spark Connect server, such as `sc://host:15002`.
    """
    there = current_session()
    if there is not None:
        return there
    remote = master or os.environ.get("SPARK_REMOTE")
    if remote is not None and remote.startswith("sc://"):
        return _connect(remote, conf or {})
    configured = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (conf or {}).items()
    }
    # spark-submit and its kin start the JVM themselves and choose the master.
    started = "PYSPARK_GATEWAY_PORT" in os.environ
    master = master or configured.pop("spark.master", None) or (None if started else LOCAL)
    settings = dict(_ALWAYS)
    python = configured.get("spark.pyspark.python")
    if master is not None and master.startswith("local"):
        settings |= _LOCAL
        settings["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 1))
        settings["spark.driver.memory"] = f"{_quarter_of_memory()}g"
        python = python or sys.executable
    settings |= configured
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python  # the setting alone is read by spark-submit only
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if started:
        return builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log4j2.properties"
        log.write_text(_LOG)
        options = (
            f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Dlog4j2.configurationFile={log.as_uri()}"
        )
        java = str(launcher(java_home()))
        with _environment(SPARK_SUBMIT_OPTS=options, JAVA_HOME=java):
            return builder.getOrCreate()


def _connect(url: str, conf: Mapping[str, Any]) -> SparkSession:
    """Return a Spark Connect session; of the default settings, only those for SQL apply."""
    if importlib.util.find_spec("grpc") is None:
        raise UsageError(
            f"{url}: Spark Connect needs gRPC, which isn't installed\n"
            "  hint: pip install 'rangecast[connect]'"
        )
    ours = {key: value for key, value in _ALWAYS.items() if key.startswith("spark.sql.")}
    return SparkSession.builder.config(map={**ours, **conf}).remote(url).getOrCreate()


def current_session() -> SparkSession | None:
    """Return the running session, if there is one; another thread may have started it."""
    there = SparkSession.getActiveSession()
    if is_remote():
        return there
    there = there or SparkSession._instantiatedSession
    return there if there is not None and there.sparkContext._jsc is not None else None


def is_connect(session: SparkSession) -> bool:
    """Return whether a session is a Spark Connect session, which has no local JVM."""
    return not hasattr(session, "_jsparkSession")


def is_local(session: SparkSession) -> bool:
    """Return whether the workers of a session run on this host, as processes of this user."""
    if is_connect(session):
        return False
    master = session.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


def parallelism(session: SparkSession) -> int:
    """Return the approximate number of concurrent tasks."""
    if not is_connect(session):
        return max(1, session.sparkContext.defaultParallelism)
    for key in ("spark.default.parallelism", "spark.sql.shuffle.partitions"):
        value = session.conf.get(key, None)
        if value:
            return max(1, int(value))
    return 2


@contextmanager
def job_name(session: SparkSession, text: str) -> Iterator[None]:
    """Name the jobs that this thread starts in the block, for Spark's UI and listeners."""
    if is_connect(session):
        yield
        return
    context: Any = session.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables while the JVM starts, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _quarter_of_memory() -> int:
    """Return a quarter of the available memory in whole GB, at least one and at most eight."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # a container may be given less than the machine has
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(8, max(1, total // 4 // 2**30))
