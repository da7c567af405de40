"""A folder of batches, each written exactly once, that Parquet readers may read at any time.

    matches/
        batch=000000012/        a batch: complete, or absent
            part-*.parquet
            _committed.json     which stream, batch and version it is, and counts
        _stream.json            the stream whose batches these are, and the type of the ids
    .matches.staging/           batches that are being written, one folder per attempt
        lock                    held by the stream that writes here

A batch is written into the staging folder, flushed to the disk together with its mark, and
renamed into place. The rename is the commit: before it no reader sees the batch, after it
every reader sees all of it. A batch that is run again after a crash is written again if it wasn't
committed, and skipped if it was.

The folder is on a file system with an atomic rename that all hosts mount (local disks, NFS), not
an object store. Spark, DuckDB and Arrow see `batch` as one more column.
"""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.dataset as ds

from rangecast.errors import FileError, UsageError
from rangecast.model.io.atomic import write_whole
from rangecast.model.io.durable import sync_folder, sync_tree, try_lock, write_bytes

BATCH_JOB = "batch job"
"""Prefix of the names of streams that are batch jobs, one per run."""
_MARK = "_committed.json"
_OWNER = "_stream.json"


class CommittedFolder:
    """The batches of one stream. A context manager that excludes other writers."""

    def __init__(self, folder: str | Path, stream: str, *, replace: bool = False):
        """`replace`: a batch job replaces the contents that an earlier job wrote."""
        self.folder = Path(folder)
        self.stream = stream
        self._replace = replace
        self._pending_facts: dict[str, str] | None = None  # of a replacing batch job
        self._staging = self.folder.with_name(f".{self.folder.name}.staging")

    def __enter__(self) -> CommittedFolder:
        try:
            self._staging.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(exist_ok=True)
            lock = try_lock(self._staging / "lock")
        except OSError as error:
            raise FileError(f"{self.folder}: can't be written: {error.strerror}") from None
        if lock is None:
            raise UsageError(
                f"{self.folder}: another process is writing there; stop it, or write elsewhere"
            )
        self._lock = lock
        try:
            self._take()
        except BaseException:
            self._lock.close()
            raise
        for leftover in self._staging.glob("batch=*"):  # of attempts that crashed
            shutil.rmtree(leftover, ignore_errors=True)
        return self

    def __exit__(self, *_error: object) -> None:
        self._lock.close()

    def is_committed(self, batch: int) -> bool:
        """Return whether a batch is committed."""
        return self._pending_facts is None and (self.folder / _name(batch)).exists()

    def stage(self, batch: int) -> Path:
        """Return the folder that an attempt writes a batch to; it doesn't exist yet.

        Each attempt has its own folder, as tasks of a crashed attempt may still be writing.
        """
        return self._staging / f"{_name(batch)}.{uuid4().hex}"

    def recorded(self, fact: str, value: str) -> str:
        """Return the value that the first batch recorded for a fact; record `value` if there is
        none.
        """
        if self._pending_facts is not None:
            return self._pending_facts.setdefault(fact, value)
        owner = self.folder / _OWNER
        noted: dict[str, str] = json.loads(owner.read_bytes())
        if fact not in noted:
            noted[fact] = value
            write_whole(owner, json.dumps(noted).encode())
        return noted[fact]

    def commit(self, batch: int, staged: Path, facts: dict[str, Any]) -> None:
        """Commit a staged batch, marked with `facts`."""
        mark = {"stream": self.stream, "batch": batch, **facts}
        write_bytes(staged / _MARK, json.dumps(mark).encode())
        sync_tree(staged)
        self._remove_replaced()
        try:
            staged.rename(self.folder / _name(batch))
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise FileError(
                    f"{self.folder}: is a mount point, so nothing can be renamed into it; write "
                    "to a folder inside it"
                ) from None
            raise
        sync_folder(self.folder)

    def _take(self) -> None:
        """Reject the folder of another stream, whose batch numbers mean other batches."""
        owner = self.folder / _OWNER
        if not owner.exists() or not any(self.folder.glob("batch=*")):
            # Nothing is committed yet, perhaps as an earlier run failed: no numbers clash.
            foreign = [path.name for path in self.folder.iterdir() if path.name[0] not in "._"]
            if foreign:
                raise UsageError(
                    f"{self.folder}: contains {foreign[0]!r}, which no stream wrote; write to a "
                    "separate folder"
                )
            write_whole(owner, json.dumps({"stream": self.stream}).encode())
            return
        stream = json.loads(owner.read_bytes())["stream"]
        if self._replace and BATCH_JOB in stream and BATCH_JOB in self.stream:
            self._pending_facts = {"stream": self.stream}  # until the commit nothing changes
            return
        if stream != self.stream:
            remedy = (
                "a new checkpoint starts a new stream: write to a new folder, or continue with "
            )
            remedy += "the old checkpoint"
            if BATCH_JOB in stream or BATCH_JOB in self.stream:
                remedy = (
                    "a batch job fills a folder once: delete it, write to a new one, or request "
                )
                remedy += "that it be replaced"
            raise UsageError(
                f"{self.folder}: contains the batches of another stream, {stream}; this one is "
                f"{self.stream}\n  hint: {remedy}"
            )

    def _remove_replaced(self) -> None:
        """Remove the files of the job that this one replaces; readers briefly see none."""
        if self._pending_facts is None:
            return
        gone = self._staging / f"{_name(0)}.{uuid4().hex}"
        gone.mkdir()
        for old in self.folder.glob("batch=*"):
            old.rename(gone / old.name)
        write_whole(self.folder / _OWNER, json.dumps(self._pending_facts).encode())
        self._pending_facts = None
        shutil.rmtree(gone, ignore_errors=True)


def committed_batches(folder: str | Path) -> dict[Path, dict[str, Any]]:
    """Return the folder and the mark of each committed batch, by batch number."""
    marks = sorted(Path(folder).glob(f"batch=*/{_MARK}"))
    return {mark.parent: json.loads(mark.read_bytes()) for mark in marks}


def commits(folder: str | Path) -> list[dict[str, Any]]:
    """Return the marks of all committed batches, by batch number."""
    return list(committed_batches(folder).values())


def read_committed(folder: str | Path) -> ds.Dataset:
    """Return the committed batches as an Arrow dataset, with the column `batch`; Parquet only."""
    if not commits(folder):
        raise FileError(f"{folder}: no batch has been committed there yet")
    return ds.dataset(folder, format="parquet", partitioning="hive")


def _name(batch: int) -> str:
    return f"batch={batch:09}"
