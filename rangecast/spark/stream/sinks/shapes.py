"""Shapes of the rows of sinks that hold none themselves, such as topics: kept by the checkpoint.

    checkpoint/rangecast-outputs/part-*
        {"sink": ..., "step": ..., "columns": ..., "ids": ..., "batch": ..., "former": ...,
         "revision": ...}

All lines are written again, as the next revision, when an output is new, renamed or removed, and
when a set that was empty shows the type of its ids: before the batch is written. Spark reads and
writes them: so they are on any file system that has a checkpoint, and a client of Spark Connect
needs no access to it. A checkpoint without them accepts any shape.

A name of a step keeps its shape, also when the step was removed or renamed (`former`). Outputs of
new names may be those whose names are gone: the same shape under another name is the same output. A
new shape is taken for a change if another one is no longer written: steps are added and removed
freely, but not both at once.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from rangecast.errors import UsageError
from rangecast.spark.session import job_name
from rangecast.spark.stream.sinks.base import IdColumn, Sink

_FOLDER = "rangecast-outputs"
_COMMITS = "commits"
"""Folder of a checkpoint in which Spark has a file for each batch that is complete."""
_GLOB = re.compile(r"([{}\[\]*?\\])")


class Output(NamedTuple):
    """Shape of the rows that a step writes to a sink."""

    sink: str
    step: str
    columns: str
    ids: str
    """Type of the ids of subscriptions; empty: not known, or there are none."""

    def likeness(self, held: Output) -> int:
        """Return how sure it is that readers of the held rows can read these; 0: they can't.

        Integer ids can be written as texts.
        """
        if self.columns != held.columns:
            return 0
        if self.ids == held.ids:
            return 3 if self.ids else 1
        if not self.ids or not held.ids:
            return 2
        return int(held.ids == "string")

    def __str__(self) -> str:
        return self.columns.replace("<id>", self.ids or "id")


def output_of(step: str, sink: Sink, columns: StructType, subscriptions: int) -> Output | None:
    """Return the shape of what a step writes to a sink; `None`: the sink holds its own."""
    shape = sink.shape(columns)
    if shape is None:
        return None
    ids = IdColumn.of(columns)
    return Output(sink.name, step, shape, ids.kind if ids is not None and subscriptions else "")


def outputs(
    written: Iterable[tuple[str, Sequence[Sink], StructType, int]],
) -> list[Output]:
    """Return the shapes of sinks that don't hold their own.

    written   the name, the sinks, the columns and the number of subscriptions of each step
    """
    found = (
        output_of(step, sink, columns, subscriptions)
        for step, sinks, columns, subscriptions in written
        for sink in sinks
    )
    return [output for output in found if output is not None]


class _Entry(NamedTuple):
    """A line of the folder."""

    output: Output
    batch: int
    """The first batch that was to be written in this shape."""
    is_former: bool = False
    """Whether the step was removed, or has another name."""

    @classmethod
    def of(cls, line: Mapping[str, str | int | bool]) -> _Entry:
        output = Output(*(str(line[name]) for name in Output._fields))
        return cls(output, int(line.get("batch", 0)), bool(line.get("former", False)))

    def line(self, revision: int) -> str:
        own = {"batch": self.batch, "former": self.is_former, "revision": revision}
        return json.dumps(self.output._asdict() | own)

    def continued(self, output: Output) -> _Entry:
        """Return the entry of an output that has this shape, perhaps under another name."""
        return _Entry(output._replace(ids=self.output.ids or output.ids), self.batch)


_Pairs = list[tuple[Output, _Entry]]


def _matched(
    given: Sequence[Output], held: Sequence[_Entry]
) -> tuple[_Pairs, list[Output], list[_Entry]]:
    """Return outputs and the entries whose shapes they have, one to one; and the rest of both."""
    outputs, entries = [*given], [*held]
    pairs: _Pairs = []
    for likeness in (3, 2, 1):
        for output in given:
            alike = [entry for entry in entries if output.likeness(entry.output) == likeness]
            if alike and output in outputs:
                pairs.append((output, alike[0]))
                outputs.remove(output)
                entries.remove(alike[0])
    return pairs, outputs, entries


class OutputShapes:
    """Shapes of the outputs of a stream, in its checkpoint."""

    def __init__(self, session: SparkSession, checkpoint: str):
        self._session = session
        self._checkpoint = checkpoint.rstrip("/")
        self._folder = f"{self._checkpoint}/{_FOLDER}"
        self._held: list[_Entry] | None = None
        self._revision = 0
        self._all: list[Output] = []

    def check(self, given: Sequence[Output]) -> None:
        """Reject outputs of the stream whose shapes differ from those of earlier batches."""
        self._all = [*given]
        if given:
            self._follow(given, 0)

    def record(self, given: Sequence[Output], batch: int) -> dict[Output, str]:
        """Check outputs before they are written, keep their shapes, and return their ids' types.

        An empty type isn't known. Those of `check` that aren't given have the batch already.
        """
        if not given:
            return {}
        entries, ids = self._follow([*given, *self._others(given)], batch)
        if entries != self._read():
            self._revision += 1
            lines = "\n".join(entry.line(self._revision) for entry in entries)
            with job_name(self._session, "shapes of outputs"):
                rows = self._session.sql("select :lines as value", {"lines": lines})
                rows.write.mode("append").text(self._folder)
            self._held = entries
        return ids

    def _others(self, given: Sequence[Output]) -> Iterator[Output]:
        """Return the outputs of the stream that aren't given."""
        present = Counter(output[:3] for output in given)
        for output in self._all:
            if present[output[:3]]:
                present[output[:3]] -= 1
            else:
                yield output._replace(ids="")

    def _follow(
        self, given: Sequence[Output], batch: int
    ) -> tuple[list[_Entry], dict[Output, str]]:
        """Return the entries when all outputs are given ones, and the types of the outputs' ids."""
        held = self._read()
        entries: list[_Entry] = []
        ids: dict[Output, str] = {}
        for sink in sorted({entry.output.sink for entry in held} | {one.sink for one in given}):
            new = [output for output in given if output.sink == sink]
            left = [entry for entry in held if entry.output.sink == sink]
            for output, entry in self._continued(new, left):
                new.remove(output)
                left.remove(entry)
                entries.append(entry.continued(output))
                ids[output] = max(ids.get(output, ""), entries[-1].output.ids)  # texts fit all
            for output in new:
                kind = ids.setdefault(output, output.ids)
                entries.append(_Entry(output._replace(ids=kind), batch))
            entries += (entry._replace(is_former=True) for entry in left)
        return sorted(entries), ids

    def _continued(self, given: Sequence[Output], held: Sequence[_Entry]) -> _Pairs:
        """Return the outputs of a sink that continue entries, with these; reject a change."""
        steps = {output.step for output in given}
        known = {entry.output.step for entry in held}
        present = [entry for entry in held if not entry.is_former]
        pairs: _Pairs = []
        for step in sorted(steps & known):
            own = [entry for entry in present if entry.output.step == step]
            own = own or [entry for entry in held if entry.output.step == step]
            found, new, left = _matched([one for one in given if one.step == step], own)
            if new and left:
                self._reject(new[0], left[0])
            pairs += found
        gone = [entry for entry in present if entry.output.step not in steps]
        found, new, left = _matched([one for one in given if one.step not in known], gone)
        left = [one for one in left if not any(output.likeness(one.output) for output in given)]
        if new and left:
            self._reject(new[0], left[0])
        return pairs + found

    def _reject(self, output: Output, entry: _Entry) -> NoReturn:
        held = "its batches have"
        if self._newest_commit() < entry.batch:
            held = f"batch {entry.batch} failed, and may have been written with"
        raise UsageError(
            f"{output.sink}: {held} the columns {entry.output}; given: {output}\n"
            "  hint: revert the change of the step (its type, output, kept columns or the "
            "type of ids), or write to a new sink with a new checkpoint; if all readers of "
            f"the sink accept both, remove {self._folder}"
        )

    def _newest_commit(self) -> int:
        """Return the number of the newest batch that is complete, -1 if there is none."""
        names = set(self._values(_COMMITS, "_metadata.file_name"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _read(self) -> list[_Entry]:
        if self._held is None:
            lines = [json.loads(line) for line in self._values(_FOLDER, "value")]
            self._revision = max((line.get("revision", 0) for line in lines), default=0)
            self._held = sorted(
                _Entry.of(line) for line in lines if line.get("revision", 0) == self._revision
            )
        return self._held

    def _values(self, folder: str, column: str) -> list[str]:
        """Return a column of the lines in a folder of the checkpoint; none if it isn't there."""
        path = _GLOB.sub(r"\\\1", f"{self._checkpoint}/{folder}")
        try:
            with job_name(self._session, "shapes of outputs"):
                return [row[0] for row in self._session.read.text(path).select(column).collect()]
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return []
