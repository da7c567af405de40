"""Members with integer ids, whose rows are in an array while the ids ascend, beside a dict."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rangecast.errors import UnknownIdError
from rangecast.model.sets.ascending import AscendingRows
from rangecast.model.sets.members import Members
from tests.support.seeds import seeds


def agree(members: Members, expected: dict[int, int]) -> None:
    assert list(members.items()) == list(expected.items())
    assert list(members) == list(expected)
    assert list(members.rows()) == list(expected.values())
    assert len(members) == len(expected)


@pytest.mark.parametrize("seed", seeds(40, 400))
def test_any_edits_are_those_of_a_dict(seed: int) -> None:
    rng = random.Random(seed)
    members, expected = Members(), dict[int, int]()
    following, row = rng.choice([0, 5, -7, -(2**63), 2**63 - 100_000]), 0
    kinds = rng.choice([("new",), ("new", "gone"), ("new", "gone", "old", "any"), ("gap", "gone")])
    for _ in range(60):
        kind = rng.choice(kinds)
        some = rng.sample([*expected], min(len(expected), rng.choice([1, 3, 40])))
        match kind:
            case "new" | "gap":
                step = 1 if kind == "new" else rng.choice([1, 2, 3, 900])
                count = rng.choice([1, 1, 5, 50])
                ids = [*range(following, following + count * step, step)]
                following = ids[-1] + 1
                if following > 2**63 - 50_000:
                    following = -1_000_000
            case "gone":
                for id_ in some:
                    assert members.release(id_) == expected.pop(id_)
                with pytest.raises(UnknownIdError):
                    members.release(following)
                agree(members, expected)
                continue
            case "old":
                ids = some
            case _:
                ids = [*{rng.randrange(-50, 5_000) for _ in range(rng.choice([1, 4]))}]
        rows = [rng.choice([row := row + 1, -1, 2**40]) for _ in ids]
        known = [id_ for id_ in ids if id_ in expected]
        assert [id_ for id_ in ids if id_ in members] == known
        members.bind_many(list(ids), rows)
        expected.update(zip(ids, rows, strict=True))
        agree(members, expected)
        probe = rng.choice(ids) if ids else 0
        assert members.either(probe) == (probe, expected.get(probe))
        assert members.either(np.int64(probe))[1] == expected.get(probe)


def test_ascending_ids_stay_an_array_though_the_oldest_go() -> None:
    members = Members()
    for first in range(0, 100_000, 1_000):
        members.bind_many([*range(first, first + 1_000)], range(first, first + 1_000))
        if first >= 3_000:
            members.release_many(range(first - 3_000, first - 2_000))
    rows = members._rows
    assert isinstance(rows, AscendingRows)
    assert list(rows) == [*range(97_000, 100_000)]
    assert len(rows._rows) < 20_000


@pytest.mark.parametrize("other", [2**63 - 1, -(2**63), np.int64(2**63 - 1), "5", "", 5.0, True])
def test_no_other_value_is_a_member(other: object) -> None:
    members = Members()
    members.bind_many([-1, 0, 1, 5], [0, 1, 2, 3])
    assert isinstance(members._rows, AscendingRows)
    assert other not in members
