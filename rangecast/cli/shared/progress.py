"""Progress of a pipeline: one updating line on a terminal, else one line per batch, or JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.status import Status

from rangecast.cli.shared.output import console, counted, per_second

if TYPE_CHECKING:
    from rangecast.cli.shared.run import Run
    from rangecast.spark.stream.batch import BatchOutcome


def answers(steps: dict[str, int]) -> str:
    """Return the number of answers of each step, in words."""
    if list(steps) == ["match"]:
        return counted(steps["match"], "match", "matches")
    return ", ".join(f"{count:,} by {name}" for name, count in steps.items()) or "nothing"


class StreamProgress:
    """Progress display of a stream: rows in, matches out, rate, lag and version of each batch."""

    def __init__(self, run: Run, doing: str = "waiting for the first batch"):
        self._run = run
        self.totals: dict[str, Any] = {
            "batches": 0,
            "events": 0,
            "matches": 0,
            "rejected": 0,
            "rejected_edits": 0,
            "seconds": 0.0,
            "version": None,
            "steps": {},
        }
        self._live = sys.stderr.isatty() and not run.is_silent
        self._status = Status(doing, console=console)

    def doing(self, text: str) -> None:
        """Show the current activity on a terminal, until the next batch."""
        self._status.update(text)

    def add_batch(self, outcome: BatchOutcome) -> None:
        """Add a batch to the totals and print its progress."""
        for name in ("events", "matches", "rejected", "rejected_edits", "seconds"):
            self.totals[name] += getattr(outcome, name)
        for name, count in outcome.steps.items():
            self.totals["steps"][name] = self.totals["steps"].get(name, 0) + count
        self.totals["batches"] += 1
        if outcome.subscriptions or self.totals["version"] is None:
            self.totals["version"] = outcome.version
        if self._run.options.as_json:
            self._run.print_json(outcome.facts())
        elif self._live:
            self._status.update(self._line(outcome))
        else:
            self._run.say(self._line(outcome))

    def _line(self, done: BatchOutcome) -> str:
        rate = per_second(done.events, done.seconds)
        line = (
            f"batch {done.batch}, version {done.version}: {counted(done.events, 'event')} in, "
            f"{answers(done.steps)} out, {rate}"
        )
        if done.lag is not None:
            line += f", {counted(done.lag, 'event')} waiting"
        if done.rejected:
            line += f", {counted(done.rejected, 'rejected row')}"
        if done.rejected_edits:
            line += f", {counted(done.rejected_edits, 'rejected edit')}"
        return line

    def __enter__(self) -> StreamProgress:
        if self._live:
            self._status.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._status.stop()
