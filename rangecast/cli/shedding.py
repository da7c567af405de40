"""What `rank --budget` means: a number of notifications an event, or a second of a timestamp."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from rangecast.errors import UsageError, near
from rangecast.model.attributes import Timestamp
from rangecast.model.boxes import Floats
from rangecast.model.events import Events
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


def clock_of(space: Space, given: str | None) -> int:
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
    batches: Iterator[Events], axis: int, budget: int, rank: Callable[[Floats], Best]
) -> Iterator[list[pa.Array]]:
    """Rank all events, then yield what each second has room for, the best of it.

    All answers are held meanwhile: the last event may be of the first second, and better.
    """
    cutting = Budget(budget)
    answers = []
    first = 0
    for ids, points in batches:
        best, seconds = rank(points), seconds_of(points[:, axis])
        cutting.note(best, seconds, first)
        answers.append((ids, best, seconds, first))
        first += len(points)
    for ids, best, seconds, place in answers:
        event, *others = cutting.cut(best, seconds, place).pairs()
        yield [ids.take(pa.array(event)), *map(pa.array, others)]
