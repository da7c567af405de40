"""Matches in parts: whole events, in order, of a bounded size."""

import numpy as np
import pytest

from rangecast import Engine, Number, Space


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pairs", [1, 7, 40, 10**9])
def test_parts_are_the_whole(pairs, threads):
    engine = Engine(Space([Number("price")]))
    engine.subscribe_many([{"id": n, "filter": f"price < {n}"} for n in range(50)])
    prices = np.random.default_rng(1).integers(-5, 60, 5_000)
    events = {"id": np.arange(len(prices)) + 7, "price": prices, "note": prices % 3}
    matches = engine.match_many(events, id="id", keep="note", threads=threads)
    parts = list(matches.split(pairs))
    assert [ids for part in parts for ids in part] == list(matches)
    assert [one for part in parts for one in part.event_ids.to_pylist()] == events["id"].tolist()
    assert [one for part in parts for one in part.kept["note"].to_pylist()] == [*prices % 3]
    assert all(len(part) == 1 or part.table().num_rows <= pairs for part in parts)
    if pairs == 7:
        assert max(map(len, parts)) > 1


def test_nothing_has_no_parts():
    engine = Engine(Space([Number("price")]))
    assert list(engine.match_many([]).split(5)) == []
    (part,) = engine.match_many([{"price": 1}, {"price": 2}]).split(5)
    assert list(part) == [[], []]
