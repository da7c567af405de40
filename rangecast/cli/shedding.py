"""What `rank --budget` means: a number of notifications an event, or a second of a timestamp."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rangecast.cli.job import Job
from rangecast.errors import UsageError, near
from rangecast.model.attributes import Timestamp
from rangecast.model.badrows import BadRows
from rangecast.model.boxes import Floats
from rangecast.model.events import EventFile
from rangecast.model.space import Space
from rangecast.rank.result import Best
from rangecast.rank.shed import Budget, seconds_of


def read_budget(given: str | None) -> tuple[int | None, bool]:
    """Return how many notifications, and whether that is for a second instead of an event."""
    if given is None:
        return None, False
    number, slash, unit = given.partition("/")
    if not number.strip().isdigit() or int(number) < 1 or (slash and unit.strip() != "s"):
        raise UsageError(f"--budget takes a number such as 5, or 5000/s; given: {given}")
    return int(number), bool(slash)


def _clock(space: Space, given: str | None) -> int:
    """Return the place of the timestamp that seconds are taken from."""
    times = [one.name for one in space if isinstance(one, Timestamp)]
    if given is None and len(times) == 1:
        return space.axis(times[0])
    if given in times:
        return space.axis(given)
    if given is None:
        told = f"this space has {len(times)} timestamps; say which with --clock"
    else:
        told = f"{given!r} is no timestamp of this space: {near(given, times)}"
    raise UsageError(f"--budget per second: {told}")


def per_second(
    budget: int, clock: str | None, space: Space, job: Job, rank: Callable[[Floats], Best]
) -> Callable[[Best, Floats], Best]:
    """Read all events once to find what a second has room for; return what cuts the answers.

    The answers must come in the order of the file.
    """
    axis = _clock(space, clock)
    cutting = Budget(budget)
    with tempfile.TemporaryDirectory() as folder:
        # Bad rows are told when the events are read for good.
        aside = Path(folder, "bad.jsonl") if job.bad_rows is not None else None
        with BadRows(aside) as bad:
            first = 0
            for _, points in EventFile(
                job.events,
                space,
                bad_rows=bad,
                nan_is_missing=job.nan_is_missing,
                ignore_unknown=job.ignore_unknown,
            ):
                cutting.note(rank(points), seconds_of(points[:, axis]), first)
                first += len(points)
    done = 0

    def cut(best: Best, points: Floats) -> Best:
        nonlocal done
        left = cutting.cut(best, seconds_of(points[:, axis]), done)
        done += len(points)
        return left

    return cut
