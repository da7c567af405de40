"""Snapshots that steps ship for themselves: gone with the last query that uses them."""

import gc
from types import SimpleNamespace

from rangecast.merge import Summary
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark import cover, filter_events, lifetime, match, match_ids, rank, register_match
from rangecast.spark.shipped import drivers_folder
from rangecast.spark.steps.cover import covered_rows

SPACE = Space([Number("lifetime")])  # equal spaces are shipped once: this one is no other test's


def boxes(n=3):
    return Boxes.of([[float(i)] for i in range(n)], [[i + 1.5] for i in range(n)], space=SPACE)


def snapshots():
    return {path.name for path in drivers_folder().iterdir()} - {"lock"}


def collected(spark, before, most):
    """Let Python and the JVM forget what nothing refers to, until few snapshots are new.

    Spark's listeners hold a query for a while after it ended, so this takes some rounds.
    """
    for _ in range(50):
        gc.collect()
        spark.sparkContext._jvm.System.gc()
        spark.range(1).collect()  # lets the gateway forget the objects that Python let go
        lifetime.sweep()
        if len(snapshots() - before) <= most:
            break
    return len(snapshots() - before)


STEPS = [
    lambda events: match(events, boxes(), SPACE),
    lambda events: match(events, boxes(40), SPACE, max_worker_memory=1600),  # in shards
    lambda events: rank(events, boxes(4), SPACE, k=1),
    lambda events: filter_events(events, Summary.of(boxes(5), SPACE), SPACE),
    lambda events: events.select(match_ids(boxes(6), SPACE)("lifetime")),
]


def test_what_steps_ship_goes_with_the_last_query_that_uses_it(spark):
    events = spark.createDataFrame([(i, float(i)) for i in range(4)], "id long, lifetime double")
    before = snapshots()
    assert covered_rows(spark, boxes()).tolist() == [-1, -1, -1]
    subscriptions = spark.createDataFrame([(1, "lifetime < 3")], "id long, filter string")
    assert cover(subscriptions, SPACE).count() == 1
    made = [step(events) for step in STEPS]
    expected = [one.collect() for one in made]
    derived = [one.filter("true") for one in made]
    del made
    used = len(STEPS) + 1  # a structure, or a folder of shards, of each; and the space of all
    assert collected(spark, before, used) == used
    assert [one.collect() for one in derived] == expected  # queries of the queries still use them
    del derived
    assert collected(spark, before, 0) == 0


def test_what_a_function_of_sql_uses_goes_with_the_function(spark):
    before = snapshots()
    register_match(spark, boxes(7), SPACE, name="held")
    assert collected(spark, before, 2) == 2
    for end in ("match", "match_rows"):
        spark.sql(f"drop temporary function held_{end}")
    assert collected(spark, before, 0) == 0


def test_what_steps_shipped_goes_when_the_session_stops():
    released = []
    of_a_running_one = lifetime._WatchedSnapshot(
        SimpleNamespace(_jsc="a context"), [Used()], None, 0
    )
    stopped = lifetime._WatchedSnapshot(
        SimpleNamespace(_jsc=None), [Used()], lambda: released.append("stopped"), 0
    )
    assert not of_a_running_one.is_unused()
    lifetime._cleaner.watch(stopped)
    lifetime.sweep()
    assert released == ["stopped"]


class Used:
    """A weak reference of the JVM to what is still there."""

    def refersTo(self, _):  # noqa: N802
        return False
