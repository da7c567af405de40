"""Run context of every command: files, progress, rejected rows, time and summary.

    with Run.started(output, reads=[events, space], options=options) as run:
        where = run.space(space)
        for batch in run.batches("reading", run.events(events, where)):
            ...
        run.done("5 events", 5, facts)

The summary is printed after everything is closed: no command reports success and then fails.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
from rich.progress import Progress

from rangecast.cli.shared.option_groups import RunOptions
from rangecast.cli.shared.output import compiling, console, counted, progress, taken
from rangecast.cli.shared.stdin import NAME, copy_stdin, is_pipe
from rangecast.cli.signals import held_back
from rangecast.errors import FileError, RangecastError, RejectedRow, RejectedRowError, UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.encoding.events import PLAIN, EventFile, Events
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.model.io.files import format_of, is_pattern, parts_of
from rangecast.model.io.read_progress import Reading
from rangecast.model.io.records import file_source
from rangecast.model.io.rejected import CollectedRows, RejectedRows
from rangecast.model.io.writer import TableWriter, write_table
from rangecast.model.sets.ids import Places
from rangecast.model.space import Space
from rangecast.rank.scores.factors import FactorTable, read_factors
from rangecast.report.plots import need_matplotlib

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rangecast.kernels.jit import Compiling

File = str | Path | None


class _RejectedRows(RejectedRows):
    """Rejected rows that name stdin as such, instead of its temporary copy."""

    def __init__(self, path: File, copies: list[str]):
        super().__init__(path)
        self._copies = copies

    def add(self, rejected: RejectedRow, data: dict[str, Any] | str) -> None:
        if self._writer is not None and rejected.source in self._copies:
            rejected = replace(rejected, source=NAME)
        super().add(rejected, data)


class _Summary(NamedTuple):
    text: str
    facts: dict[str, Any]
    is_loud: bool


class ProgressCallback(Protocol):
    """Callback for progress: the number of rows processed, and the share of the files read."""

    def __call__(self, count: int, reading: Reading | None = None) -> None: ...


@dataclass
class Run:
    """One run of a command, from its options to its summary."""

    output: File
    options: RunOptions
    rejected_rows: RejectedRows
    _on_stdout: bool
    """Whether results go to stdout."""
    _bars: Progress
    _compiled: Compiling
    _closing: ExitStack
    _copies: list[str]
    """Temporary copy of stdin, once it was read."""
    warnings: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)
    _summary: _Summary | None = None

    @classmethod
    @contextmanager
    def started(
        cls,
        output: File = None,
        *,
        reads: Sequence[File] = (),
        tables: Sequence[File] = (),
        pictures: Sequence[File] = (),
        texts: Sequence[File] = (),
        options: RunOptions = RunOptions(),
    ) -> Iterator[Run]:
        """Check all files, open the resources of the command, and close them at the end.

        output      the table that is the result, `-` for stdout
        reads       the files of events, subscriptions and so on
        tables      other tables that are written
        pictures    plots and pages that are written
        texts       other files that are written
        """
        written = [output, options.rejected, *tables]
        _check_files([*written, *pictures, *texts], reads)
        for table in written:
            if table is not None and not is_pipe(table):
                if Path(table).is_dir():
                    raise FileError(f"{table}: is a folder; give a file name")
                format_of(table)  # rejected before the work, not after it
        if any(pictures):
            need_matplotlib()
        if [*map(is_pipe, reads)].count(True) > 1:
            raise UsageError("only one input can be - (stdin)")
        on_stdout = any(map(is_pipe, [*written, *pictures, *texts]))
        with held_back(), suppress(ImportError):  # Arrow would, where a signal can be lost
            import_module("pandas")
        silent = options.quiet or options.as_json
        copies: list[str] = []
        try:
            with (
                _RejectedRows(options.rejected, copies) as bad,
                compiling(quiet=silent) as compiled,
                ExitStack() as closing,
            ):
                bars = progress(quiet=silent, on_stdout=on_stdout)
                closing.callback(bars.stop)
                run = cls(output, options, bad, on_stdout, bars, compiled, closing, copies)
                yield run
        except BrokenPipeError:  # the reader of stdout is gone, as with `head`: no fault
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        except RangecastError as error:
            if isinstance(error, RejectedRowError) and reads:
                option = "or write rejected rows to a file with --rejected FILE"
                remedy = f"{error.rejected.remedy}, {option}"
                error = RejectedRowError(replace(error.rejected, remedy=remedy))
            for copy in copies:
                error.args = tuple(str(text).replace(copy, NAME) for text in error.args)
            raise error from None
        run._print_line()

    @property
    def is_silent(self) -> bool:
        """Whether output for people is suppressed."""
        return self.options.quiet or self.options.as_json

    def file(self, path: Path) -> Path:
        """Return the file to read for a path; for stdin, its temporary copy."""
        if not is_pipe(path):
            return path
        if not self._copies:
            folder = self._closing.enter_context(TemporaryDirectory(prefix="rangecast-"))
            self._copies.append(str(copy_stdin(Path(folder))))
        return Path(self._copies[0])

    def space(self, path: Path) -> Space:
        """Read the space."""
        return Space.load(self.file(path))

    def subscriptions(self, path: Path, space: Space) -> Boxes:
        """Read all subscriptions of a file."""
        with self.task("reading subscriptions") as advance:
            return read_subscriptions(
                self.file(path),
                space,
                rejected=self.rejected_rows,
                ignore_unknown=self.options.ignore_unknown,
                progress=advance,
                id=self.options.subscription_id,
                keep=self.options.kept,
            )

    def events(
        self, path: Path, space: Space, *, again: bool = False, columns: EventColumns = PLAIN
    ) -> EventFile:
        """Return a file of events, to be read in batches; its header is checked here.

        again     whether it was read before, so that rejected rows and warnings were already
                  reported
        columns   columns that are allowed besides values
        """
        events = EventFile(
            self.file(path),
            space,
            rejected=CollectedRows() if again else self.rejected_rows,
            nan=self.options.nan,
            ignore_unknown=self.options.ignore_unknown,
            columns=columns,
            id=self.options.event_id,
            keep=self.options.kept,
        )
        events.check()
        events.warnings = [] if again else self.warnings
        return events

    def score_factors(self, path: Path, events: EventFile, boxes: Boxes) -> FactorTable:
        """Read a table of factors for these events and subscriptions."""
        source = file_source(self.file(path))
        table = read_factors(
            source, events.id_type or pa.int64(), boxes.ids.type, self.rejected_rows
        )
        unknown = int((Places(boxes.ids).find(table.subscriptions) < 0).sum())
        if unknown:
            rows = counted(unknown, "row")
            self.warnings.append(f"{rows} of {path}: there is no such subscription")
        return table

    def batches(self, text: str, events: EventFile) -> Iterator[Events]:
        """Yield all events of a file, with progress."""
        with self.task(text) as advance:
            for batch in events:
                yield batch
                advance(len(batch.points), events.reading)

    @contextmanager
    def task(self, text: str) -> Iterator[ProgressCallback]:
        """Show a task; yield a callback that advances its row count.

        The callback takes the number of rows, and the share of the files read so far.
        """
        self._bars.start()
        task = self._bars.add_task(text, total=None, rows=0)
        rows = 0

        def advance(count: int, reading: Reading | None = None) -> None:
            nonlocal rows
            rows += count
            total = None if reading is None else reading.total or None
            done = None if reading is None or total is None else reading.done
            self._bars.update(task, total=total, completed=done, rows=rows)

        yield advance
        self._bars.remove_task(task)
        if not self._bars.tasks:
            self._bars.stop()

    def in_background(self) -> Run:
        """Return the same run for another thread, without progress."""
        return replace(self, _bars=progress(quiet=True, on_stdout=False))

    def spark(self, master: str | None, conf: Mapping[str, Any] | None = None) -> SparkSession:
        """Start Spark for the duration of the command; the start-up time isn't counted."""
        from rangecast.cli.shared.spark_session import spark_session

        with self.task("starting Spark"):
            session = self._closing.enter_context(spark_session(master, conf))
        self._began = time.perf_counter()
        return session

    def writer(self, schema: pa.Schema) -> TableWriter:
        """Return the writer of the result."""
        assert self.output is not None
        return TableWriter(self.output, schema)

    def write(self, table: pa.Table, path: File) -> None:
        """Write a whole table, if a file was given for it."""
        if path is not None:
            write_table(table, path)

    def say(self, text: str) -> None:
        """Print a line for the user."""
        if not self.is_silent:
            console.print(text, markup=False)

    def print_json(self, facts: Mapping[str, Any]) -> None:
        """Print facts as JSON: on stdout, or on stderr if results are on stdout."""
        stream = sys.stderr if self._on_stdout else sys.stdout
        print(json.dumps(facts, default=str), file=stream, flush=True)

    def done(
        self,
        text: str,
        count: int | None,
        facts: Mapping[str, Any],
        details: Sequence[str] = (),
        *,
        seconds: float | None = None,
        is_loud: bool = False,
    ) -> None:
        """Set the summary: a sentence, or all facts as one line of JSON.

        count       number of items processed, for the rate; `None`: no rate
        details     text after the time taken
        seconds     time taken, if not since the start
        is_loud     whether it is shown despite --quiet
        """
        seconds = time.perf_counter() - self._began if seconds is None else seconds
        compiled = self._compiled.seconds
        text = "; ".join([f"{text} {taken(seconds, compiled, count)}", *details])
        if self.options.rejected is not None:
            rejected = counted(self.rejected_rows.count, "rejected row")
            text += f"; {rejected} in {self.options.rejected}"
        common = {
            "rejected": self.rejected_rows.count,
            "seconds": round(seconds, 3),
            "compiling": round(compiled, 3),
            "output": None if self.output is None else str(self.output),
            "warnings": self.warnings,
        }
        self._summary = _Summary(text, common | dict(facts), is_loud)

    def _print_line(self) -> None:
        if self._summary is None:
            return
        text, facts, is_loud = self._summary
        if self.options.as_json:
            self.print_json(facts)
        elif is_loud or not self.options.quiet:
            for warning in self.warnings:
                console.print(f"warning: {warning}", markup=False)
            console.print(text, markup=False)


def check_new(path: Path | None, *, overwrite: bool) -> None:
    """Raise `FileError` if the file exists, unless `overwrite` is set."""
    if path is not None and path.exists() and not overwrite:
        raise FileError(
            f"{path}: already exists\n  hint: write to another file, or pass --overwrite"
        )


def _matched(path: str | Path) -> list[Path]:
    return parts_of(path) if is_pattern(path) else []


def _check_files(written: Sequence[File], files: Sequence[File]) -> None:
    """Reject overwriting an input file, and writing two outputs to one file."""
    named = [Path(path) for path in written if path is not None]
    inputs = [file for path in files if path is not None for file in (Path(path), *_matched(path))]
    for path in named:
        if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
            raise FileError(f"{path}: is an input of this command; write to another file")
    resolved = [path.resolve() for path in named]
    for path in named:
        if resolved.count(path.resolve()) > 1:
            raise FileError(
                f"{path}: is given for two outputs; choose another file for one of them"
            )
