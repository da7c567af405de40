"""Single events are verified by the call that finds their candidates, whatever the index."""

from __future__ import annotations

import random

import pytest

from rangecast import Engine, Number, Point, Space
from rangecast.match.live import _match_by_all, _match_plainly
from tests.shapes.oracle import circle_holds, polygon_holds, wkt

TRIANGLE = [(0.0, 0.0), (4.0, 0.0), (0.0, 4.0), (0.0, 0.0)]


def shapes(seed, count):
    """Filters of triangles and circles with a bound of v, and whether each holds for an event."""
    r = random.Random(seed)
    made = []
    for number in range(count):
        x, y, v = r.randint(0, 40) / 2, r.randint(0, 40) / 2, r.randint(0, 9)
        if number % 2:
            ring = [(a + x, b + y) for a, b in TRIANGLE]
            text = f"within(place, '{wkt([ring])}') and v >= {v}"

            def holds(event, ring=ring, v=v):
                return event["v"] >= v and polygon_holds([ring], event["x"], event["y"], "closed")
        else:
            text = f"within(place, circle({x}, {y}, 2.5)) and v >= {v}"

            def holds(event, x=x, y=y, v=v):
                return event["v"] >= v and circle_holds(x, y, 2.5, event["x"], event["y"], "closed")

        made.append((text, holds))
    return made


@pytest.mark.parametrize("index", ["tiles", "cells", "slabs", "rtree", "scan"])
def test_all_indexes_parts_and_newest_rows(index):
    engine = Engine(Space([Point("place"), Number("v")]), index=index)
    wanted = {}
    r = random.Random(8)
    for part in range(3):
        some = {f"{part}.{n}": one for n, one in enumerate(shapes(part, (300, 60, 20)[part]))}
        engine.subscribe_many([{"id": id_, "filter": text} for id_, (text, _) in some.items()])
        wanted |= some
        for id_ in r.sample(sorted(wanted), 10):
            engine.unsubscribe(id_)
            del wanted[id_]
        for _ in range(60):
            event = {"x": r.randint(0, 88) / 4, "y": r.randint(0, 88) / 4, "v": r.randint(0, 9)}
            expected = [id_ for id_, (_, holds) in wanted.items() if holds(event)]
            assert engine.match(event) == expected


def test_one_call_finds_and_verifies():
    engine = Engine(Space([Point("place")]), index="tiles")
    texts = [f"within(place, circle({at % 50}, {at // 50}, 0.7))" for at in range(3000)]
    engine.subscribe_many({"id": [*range(3000)], "filter": texts})
    assert engine.match({"x": 10.5, "y": 20}) == [1010, 1011]
    call = engine._view.single_event[0].match
    assert call.func not in (_match_by_all, _match_plainly)
