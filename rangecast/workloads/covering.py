"""The commands of paper 000, section V-A: subscribes and unsubscribes, mixed.

Every edge of a subscription is a random segment of 0 .. 2^31 - 1. A command is an unsubscribe
with probability p, of a subscription chosen at random among those that are live. The paper's
settings: 60,000 commands on 5 attributes with p = 5% and 40% (V-B); 10,000 .. 100,000 commands on
3 .. 8 attributes with p = 15% (V-C). Its "dimensions" are those of the points, two per attribute.

Where the paper is silent:
- A random segment has two independent, uniform ends (`segment` is `ends`), or a uniform length and
  then a uniform place (`length`). Counts of work with the second are nearer to tables I and II.
- When nothing is live, the command is a subscribe.
- Events (the paper has none) are uniform over the space.

`commands` holds the columns seq, command, id and the bounds, which are null for an unsubscribe;
`subscriptions` holds every box that was ever subscribed, by id.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import I64, Bool
from rangecast.model.attributes.base import Integer
from rangecast.model.space import Space
from rangecast.workloads.base import Workload, box_table, event_table, numbered, takes, workload
from rangecast.workloads.draws import stream

TOP = 2**31 - 1


def _command_ids(rng: np.random.Generator, commands: int, share: float) -> tuple[I64, Bool]:
    """Return the id of each command, and whether it is a subscribe."""
    unsubscribes = (rng.random(commands) < share).tolist()
    chance = rng.random(commands).tolist()
    live: list[int] = []
    ids = np.empty(commands, dtype=np.int64)
    subscribes = np.zeros(commands, dtype=np.bool_)
    next_id = 0
    for seq in range(commands):
        if unsubscribes[seq] and live:
            index = int(chance[seq] * len(live))
            live[index], live[-1] = live[-1], live[index]
            ids[seq] = live.pop()
        else:
            subscribes[seq] = True
            ids[seq] = next_id
            live.append(next_id)
            next_id += 1
    return ids, subscribes


def _segments(rng: np.random.Generator, shape: tuple[int, int], segment: str) -> tuple[I64, I64]:
    """Return the end points of random segments."""
    if segment == "ends":
        ends = rng.integers(0, TOP, (*shape, 2), endpoint=True)
        ends.sort(axis=2)
        return ends[:, :, 0], ends[:, :, 1]
    length = rng.integers(0, TOP, shape, endpoint=True)
    start = rng.integers(0, TOP - length, endpoint=True)
    return start, start + length


@workload("covering", source="paper 000, section V-A")
def covering(
    seed: int,
    *,
    commands: Annotated[int, takes("Number of subscribes and unsubscribes.", ge=0)] = 60_000,
    events: Annotated[int, takes("Number of uniform events.", ge=0)] = 1_000,
    attributes: Annotated[int, takes("Attributes of each box.", ge=1)] = 5,
    unsubscribe_share: Annotated[
        float, takes("p: probability that a command unsubscribes.", ge=0, lt=0.5)
    ] = 0.15,
    segment: Annotated[
        Literal["ends", "length"], takes("Quantity drawn: both ends, or the length first.")
    ] = "ends",
) -> Workload:
    """Boxes with random bounds, added and removed by a sequence of commands."""
    space = Space(Integer(name, min=0, max=TOP) for name in numbered("a", attributes))
    ids, subscribes = _command_ids(stream(seed, "covering/commands"), commands, unsubscribe_share)
    boxes = int(subscribes.sum())
    lo, hi = _segments(stream(seed, "covering/boxes"), (boxes, attributes), segment)
    mentioned = np.broadcast_to(subscribes[:, None], (commands, attributes))
    command_bounds = box_table(space.names, lo[ids], hi[ids], mentioned=mentioned).drop_columns(
        "id"
    )
    words = pa.array(["unsubscribe", "subscribe"]).take(pa.array(subscribes.astype(np.int64)))
    columns = {"seq": pa.array(np.arange(commands)), "command": words, "id": pa.array(ids)}
    columns |= {name: command_bounds[name] for name in command_bounds.column_names}
    points = stream(seed, "covering/events").integers(0, TOP, (events, attributes), endpoint=True)
    tables = {
        "commands": pa.table(columns),
        "subscriptions": box_table(space.names, lo, hi),
        "events": event_table(space.names, points),
    }
    return Workload("covering", space, tables)
