"""Kills a process before its n-th operation on the files of a folder: a crash at each step.

The work runs in a child that is forked from a clean server process, as a fork of the test process
itself would inherit the locks of its threads.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OPERATIONS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove")
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.store.test_versions", "tests.store.test_commits"])


def _run(work: Callable[[Path], None], folder: Path, operations: int) -> None:
    left = operations

    def count(event: str, given: tuple[Any, ...]) -> None:
        nonlocal left
        if event in OPERATIONS and str(given[0]).startswith(str(folder)):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), 9)

    sys.addaudithook(count)
    work(folder)
    os._exit(0)


def killed_at_each_operation(
    root: Path, prepare: Callable[[Path], None], work: Callable[[Path], None]
) -> Iterator[Path]:
    """Yield a folder in which the work was killed before its first operation on files, then one
    before its second, and so on until it ends well; each was prepared anew.
    """
    for operations in range(1000):
        folder = root / f"killed-{operations}"
        folder.mkdir()
        prepare(folder)
        child = _SERVER.Process(target=_run, args=(work, folder, operations))
        child.start()
        child.join()
        if child.exitcode == 0:
            assert operations > 3, "there was nothing to kill"
            return
        assert child.exitcode == -9, child.exitcode
        yield folder
    raise AssertionError("the work never ends")
