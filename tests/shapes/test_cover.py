"""Covering with shapes: what lies inside of what, in whole sets and through edits."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
import shapely

from rangecast import Engine, Location, Number, Point, Space
from rangecast.cover import CoverSet
from rangecast.cover.batch import covered_by
from rangecast.cover.plain import covered_plainly
from tests.shapes.test_containment import polygon


class Drawn:
    """A filter, and what it means to shapely."""

    def __init__(self, r: random.Random):
        self.shape = polygon(r)
        self.least = r.choice([None, None, 1.0, 2.0])
        self.text = f"within(place, '{self.shape.wkt}')"
        self.text += "" if self.least is None else f" and v >= {self.least}"

    def covers(self, other: Drawn) -> bool:
        looser = self.least is None or (other.least is not None and self.least <= other.least)
        return looser and self.shape.covers(other.shape)


def drawn(seed: int, count: int) -> dict[str, Drawn]:
    """Filters that the language takes."""
    r, made = random.Random(seed), {}
    probe = Engine(Space([Point("place"), Number("v")]))
    while len(made) < count:
        one = Drawn(r)
        shapes = [one]
        if r.random() < 0.3:  # the same one, and what lies inside of it
            x, y = one.shape.representative_point().coords[0]
            small = Drawn(r)
            small.shape = shapely.box(x - 0.01, y - 0.01, x + 0.01, y + 0.01)
            small.text = f"within(place, '{small.shape.wkt}') and v >= 2"
            small.least = 2.0
            shapes.append(small)
        for each in shapes:
            name = f"s{len(made)}"
            try:
                probe.subscribe(name, each.text)
            except ValueError:  # a ring that touches itself
                continue
            made[name] = each
    return made


def kept(filters: dict[str, Drawn]) -> set[str]:
    """Those that no other one covers; of equal ones the first."""
    names = list(filters)
    found = set()
    for at, name in enumerate(names):
        one = filters[name]
        above = [
            other
            for place, other in enumerate(names)
            if other != name
            and filters[other].covers(one)
            and (place < at or not one.covers(filters[other]))
        ]
        if not above:
            found.add(name)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_whole_sets(seed):
    filters = drawn(seed, 60)
    engine = Engine(Space([Point("place"), Number("v")]))
    engine.subscribe_many({"id": list(filters), "filter": [one.text for one in filters.values()]})
    boxes = engine.boxes()
    expected = kept(filters)
    assert len(expected) < len(filters) - 10
    for found in (covered_by(boxes), covered_plainly(boxes)):
        names = list(filters)
        assert {names[row] for row in np.flatnonzero(found < 0)} == expected
        for row, above in enumerate(found.tolist()):
            assert above < 0 or filters[names[above]].covers(filters[names[row]])


@pytest.mark.parametrize("index", ["auto", "scan"])
@pytest.mark.parametrize("k", [1, 2, "all"])
def test_edits(index, k, tmp_path):
    """One by one and many at once, the larger before the smaller and after it."""
    filters = drawn(7, 80)
    r = random.Random(9)
    names = list(filters)
    r.shuffle(names)
    live: dict[str, Drawn] = {}
    cover = CoverSet(Space([Point("place"), Number("v")]), index=index, k=k)
    for step, name in enumerate(names):
        if step == 20:
            some = names[20:40]
            cover.subscribe_many({"id": some, "filter": [filters[one].text for one in some]})
            live |= {one: filters[one] for one in some}
        if name not in live:
            cover.subscribe(name, filters[name].text)
            live[name] = filters[name]
        if r.random() < 0.3:
            gone = r.choice(list(live))
            cover.unsubscribe(gone)
            del live[gone]
        if step % 10 == 9:
            assert set(cover.uncovered()) == kept(live)
            if step == 49:
                cover.save(tmp_path / "set")
                cover = CoverSet.open(tmp_path / "set")
    for name, one in live.items():
        text = cover[name].filter
        assert text.count("within") == 1
        for other, beside in live.items():
            assert cover.covers(name, other) == (name == other or one.covers(beside))


def test_what_is_cut_covers_nothing_else():
    cover = CoverSet(Space([Point("place")]))
    cover.subscribe("half", "within(place, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))') and x < 4")
    cover.subscribe("left", "within(place, 'POLYGON ((1 1, 3 1, 3 3, 1 1))')")
    cover.subscribe("right", "within(place, 'POLYGON ((5 1, 8 1, 8 3, 5 1))')")
    cover.subscribe("whole", "within(place, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))')")
    cover.subscribe("frame", "x between -1 and 10 and y between -1 and 10")
    assert cover.covers("whole", "left")
    assert cover.covers("whole", "right")
    assert cover.covers("whole", "half")
    assert cover.covers("frame", "whole")
    assert not cover.covers("half", "right")
    assert cover.uncovered() == ["frame"]


def test_the_shell_and_spark_say_the_same(tmp_path, cli, spark):
    from rangecast.spark import cover

    filters = drawn(11, 40)
    space = Space([Point("place"), Number("v")])
    space.save(tmp_path / "space.toml")
    texts = [one.text for one in filters.values()]
    pa.csv.write_csv(pa.table({"id": list(filters), "filter": texts}), tmp_path / "set.csv")
    names = "set.csv", "--space", "space.toml", "-q"
    cli("cover", *names, "--uncovered", "uncovered.csv", "-o", "covered.csv", cwd=tmp_path)
    expected = kept(filters)
    assert set(pa.csv.read_csv(tmp_path / "uncovered.csv")["id"].to_pylist()) == expected
    given = spark.createDataFrame([*zip(filters, texts, range(len(texts)), strict=True)])
    given = given.toDF("id", "filter", "seq")
    found = cover(given, space, group_bytes=4000).collect()  # in several groups
    assert {row.subscription for row in found if row.covered_by is None} == expected


def test_circles_on_the_earth():
    cover = CoverSet(Space([Location("at"), Number("speed")]))
    cover.subscribe("small", "within(at, circle(13, 52, 4 km)) and speed > 3")
    cover.subscribe("large", "within(at, circle(13.01, 52, 9 km))")
    cover.subscribe("beside", "within(at, circle(13.1, 52, 4 km))")
    assert set(cover.uncovered()) == {"large", "beside"}
