"""Shapes of the rows of sinks that hold none themselves, such as topics: kept by the checkpoint.

    checkpoint/rangecast-outputs/part-*
        {"sink": ..., "step": ..., "columns": ..., "ids": ..., "batch": ..., "former": ...,
         "revision": ...}

All lines are written again, as the next revision, when an output is new, renamed or removed, and
when a set that was empty shows the type of its ids: before the batch is written. Spark reads and
writes them: so they are on any file system that has a checkpoint, and a client of Spark Connect
needs no access to it. A checkpoint without them accepts any shape.

A name of a step keeps its shape, also when the step was removed or renamed (`former`). An output
with a new name may be one whose name is gone: the same shape under another name is the same output.
If the shape differs, too, it is taken for a change if nothing else can be meant: no other step of
the sink has kept its name, or one name is new and one is gone.
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


class _Matched(NamedTuple):
    """Outputs and the entries whose shapes they have, one to one; and the rest of both."""

    pairs: list[tuple[Output, _Entry]]
    outputs: list[Output]
    entries: list[_Entry]

    @classmethod
    def of(cls, given: Sequence[Output], held: Sequence[_Entry]) -> _Matched:
        matched = cls([], [*given], [*held])
        for likeness in (3, 2, 1):
            for output in given:
                for entry in matched.entries:
                    if output in matched.outputs and output.likeness(entry.output) == likeness:
                        matched.pairs.append((output, entry))
                        matched.outputs.remove(output)
                        matched.entries.remove(entry)
                        break
        return matched


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
            continued, former = self._of_sink(
                [output for output in given if output.sink == sink],
                [entry for entry in held if entry.output.sink == sink],
                batch,
            )
            for output, entry in continued:
                ids[output] = max(ids.get(output, ""), entry.output.ids)  # texts fit all
                entries.append(entry)
            entries += (entry._replace(is_former=True) for entry in former)
        return sorted(entries), ids

    def _of_sink(
        self, given: Sequence[Output], held: Sequence[_Entry], batch: int
    ) -> tuple[list[tuple[Output, _Entry]], list[_Entry]]:
        """Return the outputs of a sink with their entries, and the entries of former ones."""
        pairs: list[tuple[Output, _Entry]] = []
        former: list[_Entry] = []
        unknown: list[Output] = []
        gone: list[_Entry] = []
        steps = {output.step for output in given}
        for step in sorted(steps | {entry.output.step for entry in held}):
            of_step = [output for output in given if output.step == step]
            present = [one for one in held if one.output.step == step and not one.is_former]
            before = [one for one in held if one.output.step == step and one.is_former]
            if step not in steps:
                gone += present
            elif not present and not before:
                unknown += of_step
            else:
                matched = _Matched.of(of_step, present or before)
                if matched.outputs and matched.entries:
                    self._reject(matched.outputs[0], matched.entries[0])
                pairs += matched.pairs
                for output in matched.outputs:  # another sink of this name
                    texts = any(entry.output.ids == "string" for entry in present)
                    kind = "string" if texts and output.ids else output.ids
                    pairs.append((output, _Entry(output._replace(ids=kind), batch)))
                former += matched.entries
                if not present:
                    continue
            former += before
        renamed = _Matched.of(unknown, gone)
        changed = [
            entry
            for entry in renamed.entries
            if not any(output.likeness(entry.output) for output in given)
        ]
        names = {output.step for output in unknown}, {entry.output.step for entry in gone}
        if renamed.outputs and changed and (not pairs or [*map(len, names)] == [1, 1]):
            self._reject(renamed.outputs[0], changed[0])
        found = [(output, entry.continued(output)) for output, entry in [*pairs, *renamed.pairs]]
        found += [(output, _Entry(output, batch)) for output in renamed.outputs]
        return found, [*former, *gone]

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
