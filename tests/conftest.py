import gc
import io
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import NIGHTLY

# Structures are judged, not the plain scan that answers while their kernels are compiled.
os.environ.setdefault("RANGECAST_COMPILE", "first")
# No deadline: machines are noisy, and kernels are compiled on first use.
_HYPOTHESIS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("soak", max_examples=NIGHTLY, **_HYPOTHESIS)
settings.register_profile("suite", max_examples=15, **_HYPOTHESIS)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local session for all tests of a process that need one."""
    from rangecast.spark import get_session
    from tests.support.server.servers import LIGHT

    conf = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": LIGHT,
        "spark.default.parallelism": 2,
    }
    session = get_session("local[2]", app="tests", conf=conf)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker, for all tests that need one: they are of the group "kafka"."""
    from tests.support.server.servers import kafka_broker

    with kafka_broker(tmp_path_factory.mktemp("kafka")) as servers:
        yield servers


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what is there after collection from garbage collection.

    These are half a million objects, and walking through them again and again takes a third of
    the time of a suite that does little else than create objects.
    """
    gc.disable()
    collected = yield
    gc.enable()
    gc.freeze()
    return collected


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            # Two groups, so that two processes can share the tests.
            name = "spark" if item.path.parent.name == "spark" else "spark_elsewhere"
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group(name))
        group = item.get_closest_marker("xdist_group")
        if group is not None and hasattr(config, "workerinput") and hasattr(item, "_id"):
            # xdist reads a group off the end of an id, and puts it in a field of the item that
            # pytest 9.2 no longer has: without this line every worker would start a Spark.
            item._id = item.id.parse(f"{item.nodeid}@{group.args[0]}")
    _order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run all tests of a file: they share fixtures and compiled kernels."""
    from xdist.scheduler import LoadGroupScheduling

    class ByGroupOrFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).partition("::")[0]

    config.option.loadscopereorder = False  # `_order` decides, not the number of tests
    return ByGroupOrFile(config, log)


def _order(items: list[pytest.Item]) -> None:
    """Begin with Spark's tests, which two processes run, and mix the others.

    Tests of processes wait most of the time, and the others need a core. Units of process tests
    come a little earlier than their turn, those of several files first: they take longest.
    """
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        group = item.get_closest_marker("xdist_group")
        name = group.args[0] if group is not None else item.nodeid.partition("::")[0]
        units.setdefault(name, []).append(item)
    items[:] = [item for name in ("spark", "spark_elsewhere") for item in units.pop(name, [])]
    waiting = [name for name in units if _starts_processes(units[name])]
    waiting.sort(key=lambda name: ".py" in name)
    others = [name for name in units if name not in waiting]
    when = {name: 0.8 * turn / len(waiting) for turn, name in enumerate(waiting)}
    when |= {name: turn / len(others) for turn, name in enumerate(others)}
    for name in sorted(units, key=when.__getitem__):
        items += units[name]


def _starts_processes(unit: list[pytest.Item]) -> bool:
    """Return whether most tests of a unit start processes."""
    return 2 * sum(item.get_closest_marker("process") is not None for item in unit) > len(unit)


@cache
def _commands() -> Callable[..., Any]:
    """Return the commands of `rangecast`, made once: it takes longer than most of them run."""
    from typer.main import get_command

    from rangecast.cli.main import app

    return get_command(app)


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `rangecast` with arguments, in this process: `cli("match", ..., code=0, cwd=folder)`."""
    from rangecast.cli.main import main

    command = _commands()
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: Any, code: int = 0, cwd: Path = tmp_path, stdin: bytes = b"") -> Any:
        given = ["rangecast", *map(str, arguments)]
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            patch.setattr(sys, "argv", given)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            if "serve" in given:  # it would change the allocators of this process for good
                patch.setattr("rangecast.server.memory.prepare_memory", lambda: None)
            with pytest.raises(SystemExit) as end:
                main(command)
        out, err = capsys.readouterr()
        assert (end.value.code or 0) == code, out + err
        assert "Traceback" not in err
        return subprocess.CompletedProcess(given, code, out, err)

    return run
