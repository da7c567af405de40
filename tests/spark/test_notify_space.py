"""Lists on Spark over several attributes: as a recomputation gives them, also after crashes."""

import numpy as np
import pytest

from rangecast import Space
from rangecast.errors import RangecastError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import Category, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.spark.steps.notify import step as notifying
from rangecast.spark.steps.notify.buckets import State, committed_state
from rangecast.spark.steps.notify.step import TopKLists
from tests.spark.test_notify import fails

K = 3
SPACE = Space([Number("a"), Number("b"), Category("town", ["p", "q", "r"])])
OBJECT = "id long, a double, b double, town string, value double, seq long"
UPDATE = "seq long, id long, value double, a double, b double, town string"
WISH = "id long, filter string, k int"
EDIT = "id long, op string, filter string, k int"


def shapes(rng):
    """Return a filter, as a text and as a plain function of an object."""
    lo, hi = sorted(rng.integers(-1, 11, 2).tolist())
    town = str(rng.choice(["p", "q", "r"]))
    other = "p" if town == "q" else "q"

    def between(name):
        return lambda o: o[name] is not None and lo <= o[name] <= hi

    kinds = [
        (f"a between {lo} and {hi}", between("a")),
        (
            f"a between {lo} and {hi} and b <= {hi}",
            lambda o: between("a")(o) and o["b"] is not None and o["b"] <= hi,
        ),
        (
            f"town in ('{town}', '{other}') and b between {lo} and {hi}",
            lambda o: o["town"] in (town, other) and between("b")(o),
        ),
        (
            f"a between {lo} and {hi} or b between {lo} and {hi} or town = '{town}'",
            lambda o: between("a")(o) or between("b")(o) or o["town"] == town,
        ),
        ("true", lambda _: True),
    ]
    return kinds[int(rng.integers(len(kinds)))]


class Plain:
    """Objects and interests in plain Python."""

    def __init__(self):
        self.objects, self.wishes, self.arrivals = {}, {}, 0

    def change(self, one, y, place):
        if y is None:
            del self.objects[one]
            return
        known = self.objects.get(one)
        if known is None:
            known = {"a": None, "b": None, "town": None, "arrival": self.arrivals}
            self.arrivals += 1
        moved = {name: value for name, value in place.items() if value is not None}
        self.objects[one] = {**known, **moved, "value": y}

    def lists(self):
        found = set()
        for one, (_, holds, k) in self.wishes.items():
            inside = [
                (o["value"], o["arrival"], name) for name, o in self.objects.items() if holds(o)
            ]
            for rank, (y, _, name) in enumerate(sorted(inside)[:k], 1):
                o = self.objects[name]
                found.add((one, rank, name, o["a"], o["b"], o["town"], y))
        return found


def drawn(rng, plain, count):
    """Return changes that can be applied one after the other, and apply them."""
    rows = []
    for seq in range(count):
        one, y = int(rng.integers(0, 16)), float(rng.integers(0, 9))
        place = {
            "a": float(rng.integers(0, 10)),
            "b": float(rng.integers(0, 10)),
            "town": str(rng.choice(["p", "q", "r"])),
        }
        if one in plain.objects:
            if rng.random() < 0.15:
                y = None
            place = {name: v if rng.random() < 0.3 else None for name, v in place.items()}
        elif rng.random() < 0.3:
            place["b"] = None
        plain.change(one, y, place)
        rows.append((seq, one, y, *place.values()))
    return [rows[at] for at in rng.permutation(len(rows))]


def test_lists_over_a_space_through_edits_restarts_and_crashes(spark, tmp_path, monkeypatch):
    """A random history; each batch and edit by a new process, which may crash before or after."""
    monkeypatch.setattr(notifying, "ENTRIES", 20 * K)  # buckets of 20 boxes
    rng = np.random.default_rng(5)
    plain = Plain()
    first = drawn(rng, plain, 12)
    things = [(one, *o.values()) for one, o in plain.objects.items()]
    objects = spark.createDataFrame(
        [(one, a, b, town, y, 7 * arrival) for one, a, b, town, arrival, y in things], OBJECT
    )
    assert len(first) == 12
    for one in range(40):
        plain.wishes[one] = (*shapes(rng), 1 + one % K)
    wishes = [(one, text, k) for one, (text, _, k) in plain.wishes.items()]
    how = {"space": SPACE, "k": K}
    kept = TopKLists(spark, tmp_path, objects, spark.createDataFrame(wishes, WISH), **how)

    def check():
        assert {tuple(row) for row in kept.read().collect()} == plain.lists()

    def restart():
        nonlocal kept
        kept.close()
        kept = TopKLists(spark, tmp_path, **how)

    def crashing(way, act):
        owner = {"commit": State, "sweep": notifying}[way]
        with monkeypatch.context() as broken:
            broken.setattr(owner, way, fails)
            with pytest.raises(OSError, match="disk is gone"):
                act()

    check()
    assert len(committed_state(tmp_path).buckets) > 2
    for number, way in enumerate([None, "commit", "sweep"]):
        gone = rng.choice(list(plain.wishes), 4, replace=False).tolist()
        edits = []
        for one in [*gone, *range(100 * number + 100, 100 * number + 106)]:
            text, holds = shapes(rng)
            k = int(rng.integers(1, K + 1))
            if one not in plain.wishes:
                edits.append((one, "subscribe", text, k))
                plain.wishes[one] = text, holds, k
            elif rng.random() < 0.5:
                edits.append((one, "unsubscribe", None, None))
                del plain.wishes[one]
            else:
                edits.append((one, "replace", text, None))
                plain.wishes[one] = text, holds, plain.wishes[one][2]
        frame = spark.createDataFrame(edits, EDIT)
        restart()
        if way:
            crashing(way, lambda frame=frame, number=number: kept.edit(frame, number))
            restart()
        kept.edit(frame, number)
        assert kept.edited == number
        before = plain.lists()
        updates = spark.createDataFrame(drawn(rng, plain, 3 + number), UPDATE)
        restart()
        if way:
            crashing(way, lambda rows=updates, number=number: kept.apply(rows, number))
            assert kept.committed == number - (way == "commit")
            restart()
        kept.apply(updates, number)
        check()
        if not way:
            changed = {row[0] for row in before ^ plain.lists()}
            assert len(changed) <= kept.work.changed <= kept.work.read <= kept.work.written
    messages = kept.messages(0)
    assert {"town", "a_low_from", "b_high_to"} <= {*messages.columns}
    kept.edit(
        spark.createDataFrame([(one, "unsubscribe", None, None) for one in plain.wishes], EDIT), 4
    )
    assert kept.read().collect() == []


DATES = Space([Timestamp("free"), Number("m2")])


def test_bounds_timestamps_arrival_and_what_is_rejected(spark, tmp_path):
    columns = "id string, free string, m2 double, value double, arrival int"
    flats = [("a", "2026-01-01", 50.0, 5.0, 9), ("b", "2026-02-01", 60.0, 5.0, 2)]
    flats = spark.createDataFrame([*flats, ("c", None, 70.0, 1.0, 3)], columns)
    bounds = "id long, free_lo string, m2_hi double"
    wishes = [(1, "2025-12-01", None), (2, None, 65.0), (3, None, float("inf"))]
    wishes = spark.createDataFrame(wishes, bounds)
    how = {"space": DATES, "k": 2}
    kept = TopKLists(spark, tmp_path / "l", flats, wishes, **how, descending=True)

    def shown():
        rows = kept.read().orderBy("interest", "rank").select("interest", "object").collect()
        return [tuple(row) for row in rows]

    assert shown() == [(1, "b"), (1, "a"), (2, "b"), (2, "a"), (3, "b"), (3, "a")]
    schema = "seq long, id string, value double, free string"
    moved = spark.createDataFrame([(1, "c", 7.0, "2026-03-01")], schema)
    kept.apply(moved, 0)
    assert shown() == [(1, "c"), (1, "b"), (2, "b"), (2, "a"), (3, "c"), (3, "b")]

    def rejected(says, objects=flats, interests=wishes, **other):
        with pytest.raises(RangecastError, match=says):
            TopKLists(spark, tmp_path / "none", objects, interests, **{**how, **other})

    rejected(
        "objects: unknown column 'position'", objects=flats.withColumn("position", flats.value)
    )
    rejected("lack the columns 'm2'", objects=flats.drop("m2"))
    rejected("both 'seq' and 'arrival'", objects=flats.withColumn("seq", flats.arrival))
    rejected(
        "interests: unknown column 'position_lo'",
        interests=wishes.withColumn("position_lo", wishes.m2_hi),
    )
    both = wishes.selectExpr("*", "'true' filter")
    rejected("either 'filter' or <attribute>_lo", interests=both)
    rejected("column 'filter': .*m3", interests=wishes.selectExpr("id", "'m3 > 1' filter"))
    rejected("column 'm2_hi'", interests=wishes.selectExpr("id", "2.0 m2_lo", "1.0 m2_hi"))
    rejected("column 'k': ", interests=wishes.selectExpr("id", "9 k"))
    rejected("duplicate id 1, 3 times", interests=wishes.selectExpr("1 id", "m2_hi"))
    rejected("boards without a space", epsilon=0.5)
    rejected("make it a category", space=Space([String("free")]), objects=flats.drop("m2"))
    with pytest.raises(UsageError, match="was created with space="):
        TopKLists(spark, tmp_path / "l", k=2, descending=True)
    kept.close()
    kept = TopKLists(spark, tmp_path / "l", **how, descending=True)
    for edits, says in [
        (
            wishes.selectExpr("id", "'unsubscribe' op", "1.0 position_lo"),
            "unknown column 'position_lo'",
        ),
        (wishes.selectExpr("5 + id id", "'subscribe' op", "'m2 >' filter"), "column 'filter'"),
        (moved.selectExpr("1L id", "'subscribe' op", "'true' filter"), "already subscribed: 1"),
    ]:
        with pytest.raises(RangecastError, match=says):
            kept.edit(edits, 0)
    with pytest.raises(UsageError, match="updates: unknown column 'm3'"):
        kept.apply(moved.withColumn("m3", moved.value), 1)
    assert (kept.edited, kept.committed) == (-1, 0)
    kept.edit(wishes.selectExpr("id", "'replace' op", "'m2 < 55 or m2 > 65' filter"), 0)
    assert shown() == [(i, o) for i in (1, 2, 3) for o in ("c", "a")]


ROOMS = Space([Number("a"), Number("b")])


def test_lists_with_upper_bounds_alone_on_one_attribute(spark, tmp_path):
    rng = np.random.default_rng(6)
    objects = {one: [*rng.integers(0, 9, 3).astype(float).tolist(), one] for one in range(20)}
    wishes = {}

    def wish(one):
        lo, hi, most = (*sorted(rng.integers(0, 9, 2).tolist()), int(rng.integers(0, 9)))
        wishes[one] = lo, hi, most
        return f"a between {lo} and {hi} and b <= {most}"

    def right():
        return {
            (one, rank, name)
            for one, (lo, hi, most) in wishes.items()
            for rank, (_, _, name) in enumerate(
                sorted(
                    (y, arrival, name)
                    for name, (a, b, y, arrival) in objects.items()
                    if lo <= a <= hi and b <= most
                )[:K],
                1,
            )
        }

    things = [(one, a, b, y, arrival) for one, (a, b, y, arrival) in objects.items()]
    things = spark.createDataFrame(things, "id long, a double, b double, value double, seq long")
    filters = spark.createDataFrame(
        [(one, wish(one)) for one in range(30)], "id long, filter string"
    )
    how = {"space": ROOMS, "k": K, "upper_bound_attribute": "b"}
    kept = TopKLists(spark, tmp_path, things, filters, **how)

    def check():
        rows = kept.read().select("interest", "rank", "object").collect()
        assert {tuple(row) for row in rows} == right()

    check()
    assert kept._loaded(kept._state).plan[0] == "sweep"
    for number in range(2):
        updates = []
        for seq, one in enumerate(rng.choice(20, 6, replace=False).tolist()):
            a, b, y = rng.integers(0, 9, 3).astype(float).tolist()
            objects[one][:3] = a, b, y
            updates.append((seq, one, y, a, b))
        columns = "seq long, id long, value double, a double, b double"
        kept.apply(spark.createDataFrame(updates, columns), number)
        check()
    edits = [(3, "replace", wish(3)), (99, "subscribe", wish(99)), (4, "unsubscribe", None)]
    del wishes[4]
    kept.edit(spark.createDataFrame(edits, "id long, op string, filter string"), 0)
    check()
    lower = spark.createDataFrame([(7, "replace", "b >= 3")], "id long, op string, filter string")
    with pytest.raises(RangecastError, match="no lower bound on 'b'"):
        kept.edit(lower, 1)
    kept.close()
    with pytest.raises(UsageError, match="upper_bound_attribute='b'; given: 'a'"):
        TopKLists(spark, tmp_path, **{**how, "upper_bound_attribute": "a"})
    with pytest.raises(UsageError, match="there is no space"):
        TopKLists(spark, tmp_path / "other", upper_bound_attribute="b")
