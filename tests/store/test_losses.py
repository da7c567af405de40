"""Commands that end early (full disk, SIGTERM, Ctrl-C) leave nothing half-written."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from rangecast.cli.shared.spark_session import with_cause
from rangecast.errors import FileError
from rangecast.model.io.atomic import write_whole
from rangecast.model.io.writer import TableWriter

COMMAND = [sys.executable, "-m", "rangecast"]
MATCH = ("match", "events.csv", "subs.csv", "--space", "space.toml", "--index", "scan", "-q")
STAND_IN = """
import os, signal
class Gone:
    def __del__(self):  # an exception that is raised here is dropped
        os.kill(os.getpid(), signal.{signal})
Gone()
raise ImportError("a stand-in")
"""


def heed_signals():
    """Let Ctrl-C reach a command even if it is ignored here, as in a job in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "space.toml").write_text('[[attribute]]\nname = "price"\ntype = "number"\n')
    (tmp_path / "subs.csv").write_text("id,filter\nany,true\n")
    (tmp_path / "events.csv").write_text("id,price\n1,1\n")
    return tmp_path


def many_events(folder, count=100_000):
    (folder / "events.csv").write_text("id\n" + "\n".join(map(str, range(count))) + "\n")


def half_written(folder):
    return [path.name for path in folder.rglob("*") if path.name.endswith(".partial")]


@pytest.mark.process
@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(data, name):
    many_events(data)
    most = 50_000
    done = subprocess.run(
        [*COMMAND, *MATCH, "-o", name],
        cwd=data,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    expected = f"rangecast: {name}: can't be written: File too large; free some space, or write"
    assert done.stderr.startswith(expected)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not half_written(data)
    assert not (data / name).exists()


@pytest.mark.process
def test_stdout_on_a_full_disk(data):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *MATCH], cwd=data, stdout=full, stderr=subprocess.PIPE, text=True
        )
    said = "rangecast: stdout: can't be written: No space left on device; free some space, "
    assert done.stderr == said + "or write to another disk\n"
    assert done.returncode == 2


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow"])
def test_every_format_that_cannot_be_finished_is_removed(tmp_path, monkeypatch, suffix):
    class Full:
        closed = False

        def __init__(self, file):
            self.file = file

        def write(self, data):
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

        def flush(self):
            pass

        def fileno(self):
            return self.file.fileno()

        def close(self):
            self.file.close()

    opened = type(tmp_path).open
    monkeypatch.setattr(type(tmp_path), "open", lambda path, mode: Full(opened(path, mode)))
    target = tmp_path / f"t.{suffix}"
    table = pa.table({"a": [1, 2]})

    def write():
        with TableWriter(target, table.schema) as writer:
            writer.write(table.to_batches()[0])

    with pytest.raises(FileError, match="Disk quota exceeded; free some space"):
        write()
    assert not list(tmp_path.iterdir())


def test_a_writer_that_is_never_entered_leaves_nothing(tmp_path):
    writer = TableWriter(tmp_path / "t.csv", pa.schema([("a", pa.int64())]))
    assert half_written(tmp_path)
    del writer
    assert not half_written(tmp_path)


def test_a_file_that_cannot_be_written_whole_leaves_nothing(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "a.json", b"{}")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_anywhere_else_is_no_internal_error(cli, data, monkeypatch):
    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "stdin.csv"))

    monkeypatch.setattr("rangecast.cli.shared.run.copy_stdin", full)
    done = cli("match", "-", *MATCH[2:], code=2)
    assert "stdin.csv: No space left on device; free some space, or use another" in done.stderr
    assert "internal" not in done.stderr


@pytest.mark.parametrize(
    "message",
    [
        "java.io.IOException: No space left on device\n\tat a.b(C.java:1)\n",
        "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\n",
    ],
)
def test_a_full_disk_on_spark_is_told_in_one_line(message):
    error = with_cause(f"An error occurred while calling o1.save.\n: {message}")
    assert type(error) is FileError
    assert str(error) == "Spark: No space left on device; free some space, or use another disk"


def test_an_internal_error_asks_for_a_report(cli, data, monkeypatch):
    def broken(*given, **named):
        raise KeyError("x")

    monkeypatch.setattr("rangecast.match.choose.choose", broken)
    assert cli(*MATCH, code=1).stderr == (
        "rangecast: internal error (KeyError): 'x'; please report it with the output of "
        "RANGECAST_TRACEBACK=1\n"
    )


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_command_and_leaves_nothing(data, number):
    many_events(data, 1_000_000)  # seconds of work
    given = (*MATCH, "-o", "out.csv", "--rejected", "bad.csv")
    with subprocess.Popen(
        [*COMMAND, *given], cwd=data, stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals
    ) as running:
        while not half_written(data) and running.poll() is None:
            time.sleep(0.02)
        running.send_signal(number)
        _, said = running.communicate()
    assert running.returncode == 128 + number, said
    assert "Traceback" not in said
    assert not half_written(data)
    assert not (data / "out.csv").exists()


@pytest.mark.process
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_during_the_first_import_of_pandas_is_not_lost(data, name):
    (data / "stand-in/pandas").mkdir(parents=True)
    (data / "stand-in/pandas/__init__.py").write_text(STAND_IN.format(signal=name))
    before = os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        [*COMMAND, *MATCH, "-o", "out.csv"],
        cwd=data,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{data / 'stand-in'}:{before}"},
        preexec_fn=heed_signals,
    )
    assert done.returncode == 128 + getattr(signal, name), done.stderr
    assert "Exception ignored" not in done.stderr
    assert not (data / "out.csv").exists()
