"""Tests for every kind of Spark session: local, Spark Connect, a cluster.

Tests call the functions of `CHECKS` with a session. Where a session needs a process of its own,
this file is run there:

    python -m tests.support.everywhere <master or sc:// URL> [<setting>=<value> ...]
"""

import random
import sys
import time

from rangecast import (
    Digest,
    Engine,
    Notifier,
    Number,
    Policy,
    Space,
    String,
    Timestamp,
    Tracker,
)
from rangecast.cover import CoverSet
from rangecast.merge import Summary
from rangecast.spark import (
    cover,
    get_session,
    match,
    match_ids,
    merge,
    prepare_match,
    rank,
    register_match,
    register_rank,
    track,
)

SYMBOLS = ["ann", "bob", "çé", "it's", None]


def space():
    """A space of its own: a string attribute learns words."""
    return Space([Number("price", min=0, max=100), String("name"), Number("size")])


def made(count, seed=5):
    """Return subscriptions as (id, filter, score)."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        low = chance.randrange(95)
        price = f"price between {low} and {low + chance.randrange(1, 40)}"
        name = ["ann", "bob", "çé", "it''s"][chance.randrange(4)]
        forms = [price, f"{price} and name = '{name}'", f"{price} or size > {low}", "size is null"]
        found.append((f"s{number}", forms[chance.randrange(4)], float(chance.randrange(9))))
    return found


def happened(count, seed=6):
    """Return events as (id, price, name, size)."""
    chance = random.Random(seed)
    return [
        (
            number,
            chance.choice([None, chance.randrange(100) + 0.5]),
            chance.choice(SYMBOLS),
            chance.choice([None, float(chance.randrange(100))]),
        )
        for number in range(count)
    ]


SUBSCRIPTIONS, EVENTS = made(120), happened(300)
SET = [(*row, number) for number, row in enumerate(SUBSCRIPTIONS)]


def frames(session):
    """Return the events and the subscriptions as DataFrames."""
    events = session.createDataFrame(EVENTS, "id bigint, price double, name string, size double")
    subscriptions = session.createDataFrame(
        SET, "id string, filter string, score double, seq bigint"
    )
    return events.repartition(3), subscriptions.repartition(2)


def _engine():
    engine = Engine(space())
    for one, text, score in SUBSCRIPTIONS:
        engine.subscribe(one, text, score=score)
    return engine


def _points():
    return [dict(zip(("price", "name", "size"), event[1:], strict=True)) for event in EVENTS]


def expected():
    """Return the ids that match each event."""
    found = _engine().match_many(_points())
    return {event[0]: list(ids) for event, ids in zip(EVENTS, found, strict=True)}


def arrays(data):
    """Return the lists by event; each event once."""
    rows = data.collect()
    found = {row[0]: list(row[1]) for row in rows}
    assert len(found) == len(rows)
    return found


def _grouped(rows):
    found = {event[0]: [] for event in EVENTS}
    for row in rows:
        found[row["event"]].append(row["subscription"])
    return {event: sorted(ids) for event, ids in found.items()}


def check_match(session):
    events, subscriptions = frames(session)
    assert arrays(match(events, subscriptions, space(), output="arrays")) == expected()


def check_shards(session):
    events, subscriptions = frames(session)
    prepared = prepare_match(session, subscriptions, space(), max_worker_memory=8_000)
    assert len(prepared.shards) > 2
    assert arrays(events.transform(match, prepared, space(), output="arrays")) == expected()


def check_rank(session):
    events, subscriptions = frames(session)
    found = {event[0]: [] for event in EVENTS}
    for row in rank(events, subscriptions, space(), k=3).orderBy("event", "rank").collect():
        found[row["event"]].append((row["subscription"], row["score"]))
    best = _engine().rank_many(_points(), k=3)
    expected = [list(some) for some in best]
    assert found == dict(zip((event[0] for event in EVENTS), expected, strict=True))


def check_cover(session):
    _, subscriptions = frames(session)
    rows = cover(subscriptions, space()).collect()
    found = {row["subscription"]: row["covered_by"] for row in rows}
    whole = CoverSet(space())
    for one, text, _ in SUBSCRIPTIONS:
        whole.subscribe(one, text)
    kept = {one for one, above in found.items() if above is None}
    assert len(found) == len(rows) == len(SUBSCRIPTIONS)
    assert kept == set(whole.uncovered())
    assert {above for above in found.values() if above is not None} <= kept


def check_merge(session):
    _, subscriptions = frames(session)
    how = {"bits": 5, "attributes": ["price", "size"]}
    rows = merge(subscriptions, space(), **how).collect()
    whole = Summary(space(), **how)
    for one, text, _ in SUBSCRIPTIONS:
        whole.subscribe(one, text)
    starts, ends = whole.ranges()
    expected = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert [(row["start"], row["end"]) for row in rows] == expected


def check_functions(session):
    events, subscriptions = frames(session)
    prepared = prepare_match(session, subscriptions, space())
    lists = expected()
    ids = match_ids(prepared, space())
    assert arrays(events.select("id", ids())) == lists
    assert arrays(events.select("id", ids("price", "name", "size"))) == lists
    register_match(session, prepared, space(), name="alerts", ignore_unknown=True)
    events.createOrReplaceTempView("events")
    exploded = "select id as event, explode(alerts_match(price, name, size)) as subscription"
    pairs = {event: sorted(ids) for event, ids in lists.items()}
    assert _grouped(session.sql(f"{exploded} from events").collect()) == pairs
    rows = "table(select size, name, id, price, 1 as other from events)"
    assert _grouped(session.sql(f"select * from alerts_match_rows({rows})").collect()) == pairs


def check_ranking_in_sql(session):
    events, subscriptions = frames(session)
    events.createOrReplaceTempView("events")
    register_rank(session, subscriptions, space(), k=3, name="top", ignore_unknown=True)
    best = [list(some) for some in _engine().rank_many(_points(), k=3)]
    expected = dict(zip((event[0] for event in EVENTS), best, strict=True))
    columns = session.sql("select id, top_rank(price, name, size) as best from events").collect()
    assert len(columns) == len(EVENTS)
    for row in columns:
        ranks = [one["rank"] for one in row["best"]]
        assert ranks == list(range(1, len(ranks) + 1))
        found = [(one["subscription"], one["score"]) for one in row["best"]]
        assert found == expected[row["id"]]
    table = "table(select size, name, id, price, 1 as other from events)"
    rows = session.sql(f"select * from top_rank_rows({table}) order by event, rank").collect()
    of_python = rank(events, subscriptions, space(), k=3).orderBy("event", "rank")
    assert rows == of_python.collect()


def check_track(session):
    tracked = Space([Timestamp("at"), Number("price")])
    rows = [
        {"id": one, "name": name, "at": f"2026-01-31T09:{one % 60:02}:00Z", "price": price}
        for one, price, name, _ in EVENTS
    ]
    columns = "id bigint, name string, at string, price double"
    events = session.createDataFrame([tuple(row.values()) for row in rows], columns)
    filters = [("low", "price < 50", 0), ("high", "price > 40", 1)]
    subscriptions = session.createDataFrame(filters, "id string, filter string, seq long")
    policy = Policy(throttle=(3, "10 min"), digest=Digest(at="09:30"))
    how = {"key": "name", "policies": {"low": policy}}
    found = track(events, subscriptions, tracked, buckets=3, **how).collect()
    engine = Engine(tracked)
    for one, text, _ in filters:
        engine.subscribe(one, text)
    tracker, notifier = Tracker(engine, key="name", time="at"), Notifier(policies={"low": policy})
    ordered = sorted(rows, key=lambda row: (row["at"], row["id"]))
    told = notifier.take([*tracker.update_many(ordered), *tracker.flush()])
    told += [*notifier.advance(tracker.watermark), *notifier.close()]
    expected = [(one.id, some.id, some.window) for some in told for one in some.transitions]
    assert notifier.dropped
    assert sorted(map(str, expected)) == sorted(
        str((row["id"], row["notification"], row["window"])) for row in found
    )


CHECKS = {
    "match": check_match,
    "shards": check_shards,
    "rank": check_rank,
    "cover": check_cover,
    "merge": check_merge,
    "functions": check_functions,
    "ranking in SQL": check_ranking_in_sql,
    "track": check_track,
}


def run(session, names):
    """Run checks, and say what each took."""
    for name in names:
        began = time.perf_counter()
        CHECKS[name](session)
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    master, *settings = sys.argv[1:]
    session = get_session(master, conf=dict(one.split("=", 1) for one in settings))
    run(session, CHECKS)
    session.stop()
