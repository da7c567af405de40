"""Waiting events against a plain list: batches and single events, in any order of times."""

import random

import numpy as np
import pyarrow as pa
import pytest

from rangecast.kernels.arrays import offsets_of
from rangecast.track.columns import MatchColumns
from rangecast.track.machine import MATCHED
from rangecast.track.waiting import Batch, Waiting

Row = tuple[int, int, str, tuple[int, ...]]
"""Time, arrival, key and matched subscriptions."""


def batch_of(rows: list[Row]) -> Batch:
    numbers = [number for *_, some in rows for number in some]
    return Batch(
        pa.array([row[2] for row in rows], pa.large_string()),
        np.array([row[0] for row in rows], np.int64),
        pa.array([row[1] for row in rows], pa.int64()),
        MatchColumns(
            offsets_of(np.array([len(row[3]) for row in rows], np.int64)),
            np.array(numbers, np.int64),
            np.full(len(numbers), MATCHED, np.uint8),
        ),
        np.zeros((len(rows), 0)),
    )


def rows_of(batch: Batch) -> list[Row]:
    offsets, numbers, flags = batch.matched
    assert (flags == MATCHED).all()
    found = zip(batch.times.tolist(), batch.ids.to_pylist(), batch.keys.to_pylist(), strict=True)
    return [
        (at, arrival, key, tuple(numbers[offsets[row] : offsets[row + 1]].tolist()))
        for row, (at, arrival, key) in enumerate(found)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_events_are_taken_by_time_and_arrival(seed: int):
    chance = random.Random(seed)
    waiting, plain, arrival = Waiting(), list[Row](), 0
    for step in range(80):
        moment = 5 * step
        for _ in range(chance.choice([0, 1, 1, 3])):
            new = []
            for _ in range(chance.choice([1, 1, 2, 9])):
                numbers = tuple(sorted(chance.sample(range(6), chance.randrange(4))))
                at = moment + chance.randrange(60)
                new.append((at, arrival, f"k{chance.randrange(3)}", numbers))
                arrival += 1
            if len(new) == 1 and chance.random() < 0.7:
                waiting.add_one(new[0][0], new[0][2], new[0][1], np.array(new[0][3], np.int64))
            else:
                waiting.add(batch_of(new))
            plain += new
        plain.sort(key=lambda row: row[:2])
        if chance.random() < 0.1:
            gone = chance.randrange(6)
            waiting = waiting.without(np.array([gone]))
            plain = [(*row[:3], tuple(one for one in row[3] if one != gone)) for row in plain]
        assert len(waiting) == len(plain)
        assert rows_of(waiting.whole()) == plain
        used = {number for row in plain for number in row[3]}
        assert set(waiting.subscriptions().tolist()) == used
        limit = moment + chance.choice([0, 5, 20])
        due = [row for row in plain if row[0] < limit]
        assert waiting.is_due(limit) == bool(due)
        singles = waiting.take_singles(limit) if chance.random() < 0.5 else None
        if singles is None:
            assert rows_of(waiting.take(limit)) == due
        else:
            taken = [(one.at, one.id, one.key, tuple(one.numbers.tolist())) for one in singles]
            assert taken == due
        plain = [row for row in plain if row[0] >= limit]


def test_few_batches_wait_however_many_came():
    waiting = Waiting()
    for number in range(1000):
        waiting.add(batch_of([(number, number, "k", (1,))]))
    assert len(waiting._batches) <= 10
    assert waiting.nbytes < 200_000


def test_ids_of_both_types_become_texts():
    waiting = Waiting()
    for at, id_ in ((3, "a"), (1, 7), (2, None)):
        waiting.add_one(at, "k", id_, np.zeros(0, np.int64))
    assert waiting.whole().ids.to_pylist() == ["7", None, "a"]
