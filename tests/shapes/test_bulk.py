"""Polygons read together are those that the parser reads one by one."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from rangecast import Engine, FilterError, Location, Number, Point, Space
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.formatting import text_of_bounds
from rangecast.model.filters.many import boxes_of_texts, read_texts
from rangecast.model.shapes.bulk import decimal
from tests.shapes.oracle import Draw, wkt
from tests.shapes.test_candidates import _star
from tests.support.seeds import seeds


def test_decimals_are_the_nearest_doubles():
    """As Python reads them; ties and what can't be told are left to the parser."""
    r = random.Random(1)
    undecided = 0
    for _ in range(100_000):
        power = r.randint(-22, 22)
        mantissa = r.choice(
            [
                r.randrange(10 ** r.randint(1, 18)),
                int(re.sub(r"[.e].*|\.", "", repr(r.random())[2:20]) or 0),
                2 ** r.randint(0, 59) + r.randint(-1, 1),
            ]
        )
        found = decimal(mantissa, power)
        undecided += found != found
        assert found != found or found == float(f"{mantissa}e{power}")
    assert undecided < 1000
    for mantissa, power in ((2**53 + 1, 0), (9007199254740993, 1), (4503599627370497 * 5, -1)):
        found = decimal(mantissa, power)
        assert found != found or found == float(f"{mantissa}e{power}")


def _texts(r: random.Random, scale: float, count: int) -> list[str]:
    """Polygons in every way of writing, right and wrong, among other filters."""
    draw = Draw(r.randrange(1000))
    texts = []
    for _ in range(count):
        ring = _star(r, r.choice([3, 4, 8, 20, 70]), scale) if r.random() < 0.7 else draw.ring()
        if r.random() < 0.1:
            ring = [(x, y / 100) if r.random() < 0.5 else (y, y + x / 9) for x, y in ring]
            ring[-1] = ring[0]
        if r.random() < 0.05:
            ring.insert(2, ring[1])
        if r.random() < 0.05:
            ring[1], ring[2] = ring[2], ring[1]
        if r.random() < 0.05:
            ring.pop()
        shape = wkt([ring])
        form = r.random()
        if form < 0.2:
            shape = shape.replace("POLYGON ((", "polygon((").replace(", ", ",")
        elif form < 0.3:
            shape = "  " + shape.replace(" ", "\n ").replace("))", " ) ) ")
        elif form < 0.4:
            shape = re.sub(r"(\d)\.(\d+)", lambda found: f"{found[1]}.{found[2]}000", shape)
        elif form < 0.45:
            shape = shape.replace("(", "(1e400 ", 1) if r.random() < 0.5 else shape[:-3]
        elif form < 0.5:
            shape = re.sub(r"(\d+)\.(\d)", r"\1\2e-1", shape)
        text = f"within(at, '{shape}')"
        form = r.random()
        if form < 0.1:
            text = f' Within ( at ,"{shape}" ) '
        elif form < 0.2:
            text = r.choice([f"not {text}", f"{text} and v > 3", f"({text})", f"{text}'", "v < 3"])
        texts.append(text)
    return texts


@pytest.mark.parametrize("seed", seeds(2, 4))
@pytest.mark.parametrize(
    ("space", "scale"),
    [
        (lambda: Space([Number("v"), Point("at")]), 1.0),
        (lambda: Space([Location("at", longitude="x", latitude="y"), Number("v")]), 30.0),
        (lambda: Space([Location("at", longitude="x", latitude="y"), Number("v")]), 150.0),
        (
            lambda: Space(
                [Location("at", longitude="x", latitude="y", edges="geodesic"), Number("v")]
            ),
            9.0,
        ),
    ],
    ids=["plane", "earth", "antimeridian", "geodesic"],
)
def test_texts_mean_what_the_parser_says(space, scale, seed):
    texts = _texts(random.Random(seed), scale, 400)
    together, alone = space(), space()
    rejected: dict[int, str] = {}
    # Once by the kernel, which is compiled by now, once by the parser alone.
    read_texts(texts[:1], space())
    lo, hi, sizes = boxes_of_texts(
        texts, together, lambda at, error: rejected.__setitem__(at, str(error))
    )
    box, order = 0, iter(sizes)
    for at, text in enumerate(texts):
        if at in rejected:
            with pytest.raises(FilterError, match=re.escape(rejected[at])):
                Filter.parse(text, alone)
            continue
        expected = Filter.parse(text, alone)
        size = next(order)
        lows, highs = lo[box : box + size], hi[box : box + size]
        assert text_of_bounds(together, lows, highs) == str(expected)
        both = zip((lows, highs), expected.arrays(), strict=True)
        axes = [axis for axis, one in enumerate(alone) if one.name != "at"]
        assert all(np.array_equal(found[:, axes], one[:, axes]) for found, one in both)
        box += size
    assert box == len(lo)
    assert set(together["at"].vocabulary) == set(alone["at"].vocabulary)


def test_answers_of_a_set_that_was_read_together():
    r = random.Random(3)
    texts = _texts(r, 1.0, 600)
    space = Space([Number("v"), Point("at")])
    good = []
    for text in texts:
        try:
            Filter.parse(text, Space([Number("v"), Point("at")]))
            good.append(text)
        except FilterError:
            continue
    together, alone = Engine(space), Engine(Space([Number("v"), Point("at")]))
    together.subscribe_many({"id": list(range(len(good))), "filter": good})
    for number, text in enumerate(good):
        alone.subscribe(number, text)
    events = [{"x": r.uniform(-2, 6), "y": r.uniform(-2, 6), "v": 5.0} for _ in range(300)]
    found, expected = together.match_many(events), alone.match_many(events)
    for event in range(len(events)):
        assert list(found[event]) == list(expected[event])
    assert together[3].filter == alone[3].filter
