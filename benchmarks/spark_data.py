"""Boxes and events as files and arrays, queries over them in SQL, and the CPU of processes."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space

MATCHES = 20
"""Approximate number of subscriptions that match an event."""
_TICKS = os.sysconf("SC_CLK_TCK")
Answer = tuple[int, int | None]
"""Number of pairs, and a sum over them if there is one."""


class Data(NamedTuple):
    """Events and subscriptions, as files and as arrays."""

    dimensions: int
    boxes: Boxes
    points: Any
    space: Space
    events: str
    subscriptions: str


def make(
    folder: Path, dimensions: int, subscriptions: int, events: int, matches: float = MATCHES
) -> Data:
    """Write boxes and events; about `matches` boxes hold an event."""
    random = np.random.default_rng(dimensions)
    side = (matches / subscriptions) ** (1 / dimensions)
    centre = random.random((subscriptions, dimensions))
    half = side * random.random((subscriptions, dimensions))  # side is the mean length
    boxes = Boxes.of(centre - half, centre + half)
    points = random.random((events, dimensions))
    space = Space([Number(f"a{axis}") for axis in range(dimensions)])
    folder.mkdir()
    columns: dict[str, Any] = {"id": np.arange(events)}
    columns |= {f"a{axis}": points[:, axis] for axis in range(dimensions)}
    pq.write_table(pa.table(columns), folder / "events.parquet", row_group_size=events // 8)
    columns = {"id": np.arange(subscriptions)}
    for axis in range(dimensions):
        columns |= {f"a{axis}_lo": boxes.lo[:, axis], f"a{axis}_hi": boxes.hi[:, axis]}
    pq.write_table(pa.table(columns), folder / "subscriptions.parquet")
    files = str(folder / "events.parquet"), str(folder / "subscriptions.parquet")
    return Data(dimensions, boxes, points, space, *files)


def inside(data: Data, event: str, subscription: str) -> str:
    """Return the condition that a box holds an event, in SQL."""
    return " and ".join(
        f"{event}.a{axis} between {subscription}.a{axis}_lo and {subscription}.a{axis}_hi"
        for axis in range(data.dimensions)
    )


def _bins(data: Data) -> int:
    """Cells of each of two attributes: about as wide as a mean box."""
    lengths = (data.boxes.hi - data.boxes.lo)[:, :2].mean()
    return max(2, int(1 / lengths))


def binned_query(
    data: Data,
    events: str,
    subscriptions: str,
    numbers: str,
    wanted: str = "count(*), sum(31 * p.id + c.id)",
) -> str:
    """Cut two attributes into cells, give each box all its cells, join on them and check.

    `numbers` is how the engine makes a row of each number from `lo` to `hi`.
    """
    n = _bins(data)
    cell = [f"cast(floor(a{axis} * {n}) as int)" for axis in (0, 1)]
    x, y = (
        numbers.format(*(each.replace(f"a{axis}", f"a{axis}_{end}") for end in ("lo", "hi")))
        for axis, each in enumerate(cell)
    )
    return f"""
        with boxes as (select *, {x} x from {subscriptions}),
        cells as (select *, {y} y from boxes),
        points as (select *, {cell[0]} x, {cell[1]} y from {events})
        select {wanted}
        from points p join cells c on p.x = c.x and p.y = c.y and {inside(data, "p", "c")}
        """


def cpu_seconds(session: Any) -> float:
    """Return the CPU seconds so far of this process, the JVM and all below it."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    return own.ru_utime + own.ru_stime + cpu_of_tree(jvm)


def cpu_of_tree(process: int) -> float:
    """Return the CPU seconds of a process, of its children, and of those that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        below = Path(f"/proc/{process}/task").glob("*/children")
        children = {int(one) for file in below for one in file.read_text().split()}
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS + sum(map(cpu_of_tree, children))
