"""Shapes of the rows of sinks that hold none themselves, such as topics: kept by the checkpoint.

    checkpoint/rangecast-outputs/part-*    {"sink": ..., "step": ..., "columns": ..., "ids": ...}

A line is appended before the first batch is written, and once more when a set that was empty shows
the type of its ids. Spark reads and writes the lines: so they are on any file system that has a
checkpoint, and a client of Spark Connect needs no access to it. A checkpoint without them accepts
any shape.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from rangecast.errors import UsageError
from rangecast.spark.session import job_name
from rangecast.spark.stream.sinks.base import ID_TYPES, Sink

_FOLDER = "rangecast-outputs"
_GLOB = re.compile(r"([{}\[\]*?\\])")


class Output(NamedTuple):
    """Shape of the rows that a step writes to a sink."""

    sink: str
    step: str
    columns: str
    ids: str
    """Type of the ids of subscriptions; empty: not known, or there are none."""

    def fits(self, held: Output) -> bool:
        """Return whether readers of the held rows can read these."""
        same_ids = not (self.ids and held.ids) or self.ids == held.ids
        return same_ids and self.columns == held.columns

    def __str__(self) -> str:
        return self.columns.replace("<id>", self.ids or "id")


def outputs(
    written: Iterable[tuple[str, Sequence[Sink], StructType, int]],
) -> list[Output]:
    """Return the shapes of sinks that don't hold their own.

    written   the name, the sinks, the columns and the number of subscriptions of each step
    """
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for step, sinks, columns, subscriptions in written:
        for sink in sinks:
            shape = sink.shape(columns)
            if shape is None:
                continue
            seen[sink.name, step] += 1
            place = seen[sink.name, step]
            kinds = [column.dataType for column in columns if column.name in ID_TYPES]
            ids = "bigint" if any("bigint" in kind.simpleString() for kind in kinds) else "string"
            name = step if place == 1 else f"{step} {place}"
            found.append(Output(sink.name, name, shape, ids if kinds and subscriptions else ""))
    return found


class OutputShapes:
    """Shapes of the outputs of a stream, in its checkpoint."""

    def __init__(self, session: SparkSession, checkpoint: str):
        self._session = session
        self._folder = f"{checkpoint.rstrip('/')}/{_FOLDER}"
        self._held: dict[tuple[str, str], Output] | None = None

    def check(self, given: Sequence[Output]) -> None:
        """Reject outputs whose shape differs from that of earlier batches."""
        if not given:
            return
        held = self._read()
        steps = {(output.sink, output.step) for output in given}
        for output in given:
            same = held.get((output.sink, output.step))
            gone = [one for at, one in held.items() if at[0] == output.sink and at not in steps]
            before = [same] if same is not None else gone  # a step may have another name now
            if before and not any(output.fits(one) for one in before):
                raise UsageError(
                    f"{output.sink}: its batches have the columns {before[0]}; given: {output}\n"
                    "  hint: revert the change of the step (its type, output, kept columns or the "
                    "type of ids), or write to a new sink with a new checkpoint; if all readers of "
                    f"the sink accept both, remove {self._folder}"
                )

    def record(self, given: Sequence[Output]) -> None:
        """Check outputs, and keep those that aren't known yet."""
        self.check(given)
        held = self._read() if given else {}
        new = []
        for output in given:
            known = held.get((output.sink, output.step))
            if known is None or (output.ids and not known.ids):
                new.append(output)
                held[output.sink, output.step] = output
        if new:
            lines = "\n".join(json.dumps(output._asdict()) for output in new)
            with job_name(self._session, "shapes of outputs"):
                rows = self._session.sql("select :lines as value", {"lines": lines})
                rows.write.mode("append").text(self._folder)

    def _read(self) -> dict[tuple[str, str], Output]:
        if self._held is None:
            lines = [Output(**json.loads(line)) for line in self._lines()]
            lines.sort(key=lambda line: bool(line.ids))  # ids become known
            self._held = {(line.sink, line.step): line for line in lines}
        return self._held

    def _lines(self) -> list[str]:
        try:
            with job_name(self._session, "shapes of outputs"):
                rows = self._session.read.text(_GLOB.sub(r"\\\1", self._folder)).collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return []
        return [row[0] for row in rows]
