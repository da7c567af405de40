"""The frame of `match` and `rank`: read both files, answer batch by batch, write, sum up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from rangecast.cli.output import compiling, counted, progress, summary, taken
from rangecast.errors import FileError
from rangecast.kernels.arrays import F64
from rangecast.model.badrows import BadRows
from rangecast.model.boxes import Boxes
from rangecast.model.events import EventFile, Events
from rangecast.model.files import TableWriter
from rangecast.model.space import Space
from rangecast.model.subscriptions import read_subscriptions

Answer = Callable[[F64], Iterator[list[pa.Array]]]
"""Points of a batch -> pieces of the result: the place of the event in the batch, the row of the
subscription, then what else the result has, one array a column."""
AnswerAll = Callable[[Iterator[Events]], Iterator[list[pa.Array]]]
"""All events -> pieces of the result, as above, but with the id of the event."""


@dataclass(frozen=True)
class Job:
    """What the two commands were told."""

    events: Path
    subscriptions: Path
    space: Path
    output: str
    bad_rows: Path | None
    ignore_unknown: bool
    nan: str
    as_json: bool
    quiet: bool
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self, columns: list[str], start: Callable[[Boxes], Answer]) -> None:
        """Write the answer to every event; `start` makes the answerer from the subscriptions."""

        def start_all(boxes: Boxes) -> AnswerAll:
            answer = start(boxes)

            def answer_all(batches: Iterator[Events]) -> Iterator[list[pa.Array]]:
                for ids, points in batches:
                    for places, *others in answer(points):
                        yield [ids.take(places), *others]

            return answer_all

        self.run_all(columns, start_all)

    def run_all(self, columns: list[str], start: Callable[[Boxes], AnswerAll]) -> None:
        """Write the answer to every event, where they are answered all together."""
        check_outputs([self.output, self.bad_rows], [self.events, self.subscriptions, self.space])
        with until_closed():
            self._run(columns, start)

    def _run(self, columns: list[str], start: Callable[[Boxes], AnswerAll]) -> None:
        space = Space.load(self.space)
        began = time.perf_counter()
        count = 0
        silent = self.quiet or self.as_json
        with (
            BadRows(self.bad_rows) as bad,
            progress(quiet=silent, output=self.output) as bars,
            compiling(quiet=silent) as compiled,
        ):
            events = EventFile(
                self.events,
                space,
                bad_rows=bad,
                nan=self.nan,
                ignore_unknown=self.ignore_unknown,
            )
            events.check()  # before all subscriptions are read and indexed
            id_type = events.id_type or pa.int64()
            reading = bars.add_task("reading subscriptions", total=None)
            boxes = read_subscriptions(
                self.subscriptions,
                space,
                bad_rows=bad,
                ignore_unknown=self.ignore_unknown,
                progress=lambda rows: bars.advance(reading, rows),
            )
            bars.remove_task(reading)
            answer = start(boxes)
            types = {
                "event": id_type,
                "subscription": boxes.ids.type,
                "rank": pa.int64(),
                "score": pa.float64(),
            }
            schema = pa.schema([(name, types[name]) for name in columns])
            task = bars.add_task("answering events", total=None)

            def batches() -> Iterator[Events]:
                nonlocal count
                for batch in events:
                    count += len(batch.points)
                    yield batch
                    bars.advance(task, len(batch.points))

            with TableWriter(self.output, schema) as writer:
                for piece in answer(batches()):
                    named = dict(zip(columns, piece, strict=True))
                    named["subscription"] = boxes.ids.take(named["subscription"])
                    writer.write(pa.record_batch(list(named.values()), schema=schema))
        seconds = time.perf_counter() - began
        facts = {
            "events": count,
            "subscriptions": boxes.rows,
            "rows": writer.rows,
            "bad_rows": bad.count,
            "seconds": round(seconds, 3),
            "compiling": round(compiled.seconds, 3),
            "output": self.output,
            **self.facts,
            "warnings": events.warnings,
        }
        text = (
            f"{counted(count, 'event')} against {counted(boxes.rows, 'subscription')}: "
            f"{counted(writer.rows, 'row')} {taken(count, seconds, compiled.seconds)}"
        )
        if self.bad_rows is not None:
            text += f"; {counted(bad.count, 'bad row')} set aside in {self.bad_rows}"
        summary(text, facts, as_json=self.as_json, quiet=self.quiet)


@contextmanager
def until_closed() -> Iterator[None]:
    """Write to stdout; if its reader goes away, as `head` does, that is no fault."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_outputs(written: Sequence[str | Path | None], given: Sequence[Path | None]) -> None:
    """Refuse to write over what is being read, or two things into one file."""
    paths = [Path(path) for path in written if path is not None and str(path) != "-"]
    for path in paths:
        for one in given:
            if one is not None and path.exists() and one.exists() and path.samefile(one):
                raise FileError(f"{path}: is an input of this command; write to another file")
    if len({path.resolve() for path in paths}) < len(paths):
        raise FileError(f"{paths[0]}: can't be both the result and something else that is written")
