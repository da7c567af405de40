"""Shared parts of the experiments of paper 001: its data, and runs of an algorithm, counted.

The interests are those of the seed; objects and updates differ from replica to replica. What is
received is counted as the paper does: each affected interest once, exposed objects not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.notify.baselines import relaxed, unicast
from rangecast.model.sets.members import Members
from rangecast.notify import Board
from rangecast.notify.line.engine import LineEngine
from rangecast.notify.line.interests import Interests
from rangecast.workloads import generate

KS = (1, 2, 5, 10, 15, 20)
K_HEADS = [f"k = {k}" for k in KS]
OBJECTS = {"tiny": 200, "quick": 2_000, "full": 10_000}
INTERESTS = {"tiny": 500, "quick": 50_000, "full": 2_000_000}
UPDATES = {"tiny": 100, "quick": 5_000, "full": 50_000}
UNICAST_UPDATES = 100
"""Unicast asks about thousands of interests for each update: fewer updates say enough."""
_CHUNK = 2_000


class Data:
    """Objects, updates of them, and the index of some interests, which nobody changes."""

    def __init__(self, objects: pa.Table, updates: pa.Table, interests: Interests):
        self.objects, self.interests = objects, interests
        self.ids, self.ys = updates["id"].to_numpy(), updates["value"].to_numpy()

    @property
    def changes(self) -> list[tuple[int, float]]:
        """The updates as rows."""
        return list(zip(self.ids.tolist(), self.ys.tolist(), strict=True))

    def board(self, k: int, **options: Any) -> Board:
        """Return a board over the interests."""
        return board_over(k, self.objects, self.interests, **options)


def board_over(k: int, objects: pa.Table, index: Interests, **options: Any) -> Board:
    """Return a board over an index that others use too: nobody changes it meanwhile."""
    board = Board(k, objects=objects, **options)
    line_engine(board).watch(index)
    board._members = Members.of(np.arange(index.rows), "interest")
    return board


def line_engine(board: Board) -> LineEngine:
    """Return the engine of a board on a line."""
    assert isinstance(board.engine, LineEngine)
    return board.engine


@lru_cache(1)
def _interests(name: str, seed: int, interests: int, settings: tuple[Any, ...]) -> Interests:
    table = generate(name, seed=seed, interests=interests, **dict(settings)).tables["interests"]
    return Interests(table["position_lo"].to_numpy(), table["position_hi"].to_numpy())


def made(
    seed: int, objects: int, interests: int, updates: int, replica: int = 0, **settings: Any
) -> Data:
    """Return the paper's workload."""
    index = _interests("topk", seed, interests, tuple({"objects": objects, **settings}.items()))
    sizes = {"objects": objects, "updates": updates, "interests": 0}
    tables = generate("topk", seed=seed + replica, **sizes, **settings).tables
    return Data(tables["objects"], tables["updates"], index)


def made_stocks(seed: int, objects: int, interests: int, updates: int) -> Data:
    """Return the trace of stocks that is made up."""
    index = _interests("topk-stocks", seed, interests, (("objects", objects),))
    tables = generate("topk-stocks", seed=seed, objects=objects, interests=0).tables
    return Data(tables["objects"], tables["updates"].slice(0, updates), index)


def painted(data: Data, k: int, algorithm: str, epsilon: float | None = None) -> dict[str, Any]:
    """Paint all updates one by one; return averages, and the largest update."""
    board = data.board(k, algorithm=algorithm, epsilon=epsilon)
    n = len(data.ids)
    sent, received = np.zeros(n, np.int64), np.zeros(n, np.int64)
    changes = data.changes
    for first in range(0, n, _CHUNK):
        messages = board.update_many(changes[first : first + _CHUNK])
        sent += np.bincount(messages.seq, minlength=n)
        own = messages.slot == data.ids[messages.seq]
        reached = line_engine(board).index.reached(messages.tile[own])
        received += np.bincount(messages.seq[own], reached, n).astype(np.int64)
    return {
        "sent": sent.sum() / n,
        "most sent": sent.max(),
        "received": received.sum() / n,
        "most received": received.max(),
        "min_y": board.work.min_y / n,
        "snap": board.work.snap / n,
    }


def relax(data: Data) -> dict[str, Any]:
    """Return how many interests CN-Relax reaches per update."""
    engine = line_engine(data.board(1))
    slots = data.ids.astype(np.int32)
    return {"received": relaxed(engine.objects, engine.index, slots).received / len(slots)}


def asked(data: Data, k: int) -> dict[str, Any]:
    """Return how often Unicast calls min_y per update, over the first few."""
    engine = line_engine(data.board(k))
    slots = data.ids[:UNICAST_UPDATES].astype(np.int32)
    done, _ = unicast(engine.objects, engine.index, slots, data.ys[:UNICAST_UPDATES], k)
    return {"min_y": done.min_y / len(slots)}
