"""A scenario: subscriptions, events and edits, each at a broker, sent through a network.

Brokers are drawn by a seed. Edits happen between events: each names the event that it precedes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, UsageError
from rangecast.kernels.arrays import F64, I64
from rangecast.model.boxes import Boxes
from rangecast.model.commands import as_commands
from rangecast.model.filters.filter import Filter
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.overlay.broker import ports
from rangecast.overlay.networks.network import Network, StrategyOptions, chosen_for, filters_of
from rangecast.overlay.networks.tree import Tree

_MAX_BATCH = 1000
"""Maximum events that are published together."""


@dataclass(frozen=True)
class ScenarioData:
    """The subscriptions and events of a scenario, encoded over one space."""

    space: Space
    boxes: Boxes
    points: F64
    event_ids: pa.Array


class Edit(NamedTuple):
    """A command among events."""

    before: int
    """Row of the event that it precedes."""
    command: str
    id: Id
    filter: Filter | None


def read_commands(path: str | Path, table: ScenarioData) -> list[Edit]:
    """Read edits from a file: before, command, id, and the columns of subscriptions."""
    kind = int if pa.types.is_integer(table.boxes.ids.type) else str
    todo = as_commands(path, table.space, kind)
    if todo.before is None:
        raise FileError(
            f"{path}: commands require the columns before, command and id\n"
            "  hint: before is the row of the event, from 0, that the command precedes"
        )
    rows = _whole(path, todo.before, len(table.points))
    filters = iter(filters_of(todo.boxes, table.space) if todo.boxes.rows else [])
    edits = [
        Edit(row, word, id_, None if word == "unsubscribe" else next(filters))
        for row, word, id_ in zip(rows, todo.words, todo.ids.to_pylist(), strict=True)
    ]
    return sorted(edits, key=lambda edit: edit.before)


def _whole(path: str | Path, values: list[Any], events: int) -> list[int]:
    try:
        rows = [int(value) for value in values]
    except (TypeError, ValueError):
        raise FileError(
            f"{path}: before must be the row of an event, a whole number from 0"
        ) from None
    for row in rows:
        if not 0 <= row <= events:
            raise FileError(
                f"{path}: before must be 0 to {events:,}, the number of events; given: {row}"
            )
    return rows


class Scenario:
    """Subscriptions and events assigned to random brokers, and their run through a network."""

    def __init__(self, table: ScenarioData, tree: Tree, brokers: int, seed: int):
        rng = np.random.default_rng(seed)
        self.given = table
        self.tree = tree
        self.brokers = brokers
        self.broker_of: dict[Id, int] = {}
        """Broker of each subscription."""
        drawn = rng.integers(0, brokers, table.boxes.rows).tolist()
        self.broker_of.update(zip(table.boxes.ids.to_pylist(), drawn, strict=True))
        self.origins: I64 = rng.integers(0, brokers, len(table.points))
        self._rng = rng

    @property
    def subscriptions_at(self) -> list[int]:
        """Number of subscriptions that each broker has, or had."""
        counts = [0] * self.brokers
        for broker in self.broker_of.values():
            counts[broker] += 1
        return counts

    def through(
        self,
        edits: Sequence[Edit] = (),
        *,
        strategy: str,
        max_ranges: int = 1000,
        chosen: StrategyOptions | None = None,
        batch_size: int = 100,
    ) -> Network:
        """Run the scenario; return its network."""
        table = self.given
        if chosen is None:
            chosen = chosen_for(strategy, table.space, table.boxes, table.points)
        network = Network(
            table.space,
            self.tree,
            self.brokers,
            strategy=strategy,
            chosen=chosen,
            max_ranges=max_ranges,
        )
        at = np.array([self.broker_of[id_] for id_ in table.boxes.ids.to_pylist()], np.int64)
        for first in range(0, len(at), batch_size):
            here = at[first : first + batch_size]
            network.do_all(
                (
                    broker,
                    ports.Subscribe(table.boxes.take(first + np.flatnonzero(here == broker))),
                )
                for broker in np.unique(here).tolist()
            )
        done = 0
        for edit in edits:
            self._publish(network, done, edit.before)
            done = edit.before
            self._edit(network, edit)
        self._publish(network, done, len(table.points))
        return network

    def _publish(self, network: Network, first: int, last: int) -> None:
        rows = np.arange(first, last)
        origins = self.origins[first:last]
        for origin in np.unique(origins).tolist():
            here = rows[origins == origin]
            for begin in range(0, len(here), _MAX_BATCH):
                batch = here[begin : begin + _MAX_BATCH]
                network.publish(origin, self.given.points[batch], batch.tolist())

    def _edit(self, network: Network, edit: Edit) -> None:
        known = edit.id in self.broker_of
        if known == (edit.command == "subscribe"):
            wrong = "already exists" if known else "doesn't exist"
            raise UsageError(
                f"in a command before event {edit.before}: subscription {edit.id!r} {wrong}"
            )
        if edit.command == "unsubscribe":
            network.do(self.broker_of.pop(edit.id), ports.Unsubscribe([edit.id]))
        elif edit.command == "replace":
            network.do(self.broker_of[edit.id], ports.Replace({edit.id: edit.filter}))
        else:
            self.broker_of[edit.id] = int(self._rng.integers(0, self.brokers))
            network.do(self.broker_of[edit.id], ports.Subscribe({edit.id: edit.filter}))


def table_of(table: ScenarioData, network: Network, edits: Sequence[Edit] = ()) -> pa.Table:
    """Return all deliveries as `match` writes them: by event, then in order of arrival."""
    ids = table.boxes.ids.to_pylist()
    arrival = {id_: index for index, id_ in enumerate(ids)}
    for edit in edits:
        if edit.command == "subscribe":
            arrival.pop(edit.id, None)
            arrival[edit.id] = len(ids) + len(arrival)
    pairs = sorted(network.deliveries, key=lambda pair: (pair[0], arrival[pair[1]]))
    rows = pa.array([event for event, _ in pairs], pa.int64())
    return pa.table(
        {
            "event": table.event_ids.take(rows),
            "subscription": pa.array([value for _, value in pairs], table.boxes.ids.type),
        }
    )
