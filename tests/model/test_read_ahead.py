"""A CSV reader that is left early: Arrow's thread that reads ahead must have ended by then.

It runs Python code, so a process that exits while it reads aborts: "terminate called without an
active exception", or "PyGILState_Release: thread state must be current".
"""

import gzip
import subprocess
import sys
import time

import pytest

from rangecast.model.io import files

LEFT_OPEN = """
import sys, time
from rangecast.model.io import files

read = files._Utf8.read

def slow(self, size):
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass
    return read(self, size)

files._Utf8.read = slow
batches = files.read_batches(sys.argv[1])
next(batches)
kept = [batches]
kept.append(kept)  # a cycle: nothing closes it before the interpreter exits
"""
ROWS = "\n".join(f"{number},{number}" for number in range(1_500_000))


@pytest.fixture
def reads(monkeypatch):
    """Give when reads began and ended; each takes a while."""
    log = []
    read = files._Utf8.read

    def slow(self, size):
        log.append("begin")
        time.sleep(0.05)
        data = read(self, size)
        log.append("end")
        return data

    monkeypatch.setattr(files._Utf8, "read", slow)
    return log


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_nothing_reads_on_after_a_reader_is_closed(tmp_path, reads, suffix):
    path = tmp_path / f"events.{suffix}"
    if suffix == "csv.gz":
        path.write_bytes(gzip.compress(f"id,price\n{ROWS}\n".encode(), 1))
    else:
        path.write_text(f"id,price\n{ROWS}\n")
    batches = files.read_batches(path)
    next(batches)
    batches.close()
    closed = list(reads)
    time.sleep(0.2)
    assert reads == closed
    assert closed.count("begin") == closed.count("end") > 1


def test_nothing_reads_on_after_an_error(tmp_path, reads):
    def fail(row, text, why):
        raise KeyError(row)

    text = f"id,price\n1,2,3\n{ROWS}\n".encode()
    with pytest.raises(KeyError):
        list(files.read_csv(text, "events.csv", fail))
    failed = list(reads)
    time.sleep(0.2)
    assert reads == failed


@pytest.mark.process
def test_a_process_exits_with_a_reader_open(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(f"id,price\n{ROWS}\n")
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", LEFT_OPEN, path], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
