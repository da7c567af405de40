"""One body over library, shell and Spark: the same answers, to the last row and in one order."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangecast.engine import Engine
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.space import Space
from rangecast.workloads import generate

FILES = ("events.parquet", "subscriptions.parquet", "--space", "space.toml", "-q")
K = 3
RANKED = ["event", "rank", "subscription", "score"]
COLUMNS = {
    "match": ["event", "subscription"],
    "exact": RANKED,
    "relaxed": RANKED,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("same")
    made = generate("market", subscriptions=250, events=120, seed=7)
    made.space.save(folder / "space.toml")
    for name, table in made.tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def by_library(data, query):
    engine = Engine(Space.load(data / "space.toml"))
    engine.subscribe_many(data / "subscriptions.parquet")
    events = pq.read_table(data / "events.parquet")
    if query == "match":
        return engine.match_many(events).table()
    return engine.rank_many(events, K, relaxed=query == "relaxed").table()


def by_shell(data, query, cli, *more):
    command = {
        "match": ("match",),
        "exact": ("rank", "--top", K),
        "relaxed": ("rank", "--top", K, "--relaxed"),
    }[query]
    cli(*command, *FILES, *more, "-o", "out.parquet", cwd=data)
    return pq.read_table(data / "out.parquet")


def by_spark(data, query, spark, **how):
    from rangecast.spark import match, rank

    space = Space.load(data / "space.toml")
    events = spark.read.parquet(str(data / "events.parquet"))
    table = pq.read_table(data / "subscriptions.parquet")
    boxes = encode_subscriptions(table, space)
    if query == "match":
        found = match(events, boxes, space, **how).toArrow()
        arrival = {one: place for place, one in enumerate(boxes.ids.to_pylist())}
        places = pa.array([arrival[one] for one in found["subscription"].to_pylist()], pa.int64())
        order = [("event", "ascending"), ("place", "ascending")]
        return found.append_column("place", places).sort_by(order).drop_columns("place")
    found = rank(events, boxes, space, K, relaxed=query == "relaxed", **how).toArrow()
    return found.sort_by([("event", "ascending"), ("rank", "ascending")])


def rows(table, query):
    assert table.column_names == COLUMNS[query]
    return table.to_pylist()


@pytest.mark.parametrize("query", COLUMNS)
def test_library_shell_and_spark_give_the_same_rows(cli, spark, data, query):
    expected = rows(by_library(data, query), query)
    assert len(expected) > 100
    assert rows(by_shell(data, query, cli), query) == expected
    assert rows(by_shell(data, query, cli, "--engine", "spark"), query) == expected
    for how in ({}, {"max_worker_memory": 30_000}):
        assert rows(by_spark(data, query, spark, **how), query) == expected, how


# ---- events that are spans, uncertain, or whose scores depend on the event

NUMBERS = ("price", "volume", "pe")
ADJUSTED = {
    "overlap": {"span": "overlap"},
    "contain": {"span": "contain"},
    "uncertain": {"probabilities": True},
    "factors": {"score_factors": True},
    "factors of spans": {"score_factors": True, "span": "overlap"},
    "relaxed factors": {"score_factors": True, "relaxed": True},
    "tolerances": {"relaxed": True, "tolerances": {"price": 12.5, "volume": 40_000}},
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """The same market, with spans, probabilities and factors."""
    folder = tmp_path_factory.mktemp("adjusted")
    made = generate("market", subscriptions=250, events=90, seed=8)
    made.space.save(folder / "space.toml")
    pq.write_table(made.tables["subscriptions"], folder / "subscriptions.parquet")
    events, rng = made.tables["events"], np.random.default_rng(4)
    pq.write_table(events, folder / "points.parquet")
    for name in NUMBERS:
        values = events[name].to_numpy(zero_copy_only=False).astype(float)
        width = np.where(rng.random(len(values)) < 0.5, 0.0, values * rng.random(len(values)) / 4)
        single = rng.random(len(values)) < 0.3  # a value instead of a span
        lo, hi = np.floor(values), np.floor(values + width)
        for column, some, hidden in (("lo", lo, single), ("hi", hi, single), ("", lo, ~single)):
            column = f"{name}_{column}" if column else name
            mask = hidden | np.isnan(values)
            array = pa.array(np.where(mask, 0, some), pa.float64(), mask=mask)
            if made.space[name].type == "integer":
                array = array.cast(pa.int64())
            if column in events.column_names:
                events = events.drop_columns(column)
            events = events.append_column(column, array)
    pq.write_table(events, folder / "spans.parquet")
    for name in NUMBERS[:2]:
        probabilities = rng.choice([0.25, 0.5, 1.0], len(events))
        array = pa.array(probabilities, mask=rng.random(len(events)) < 0.2)
        events = events.append_column(f"{name}_probability", array)
    pq.write_table(events, folder / "uncertain.parquet")
    ids = made.tables["subscriptions"]["id"].to_pylist()
    pairs = [
        {"event": event, "subscription": one, "factor": float(rng.choice([0, 0.5, 1.5, 3]))}
        for event in [*events["id"].to_pylist()[::2], 10**9]
        for one in [*rng.choice(ids, 60, replace=False).tolist(), "nobody"]
    ]
    pq.write_table(pa.Table.from_pylist(pairs), folder / "factors.parquet")
    return folder


def file_of(query):
    points = dict.fromkeys(("factors", "relaxed factors", "tolerances"), "points")
    return {**points, "uncertain": "uncertain"}.get(query, "spans")


def adjusted_by_library(wide, query):
    engine = Engine(Space.load(wide / "space.toml"))
    engine.subscribe_many(wide / "subscriptions.parquet")
    events = pq.read_table(wide / f"{file_of(query)}.parquet")
    how = dict(ADJUSTED[query])
    if how.pop("probabilities", False):
        how["probabilities"] = {}
    if how.pop("score_factors", False):
        table = pq.read_table(wide / "factors.parquet").to_pylist()
        known = {(row["event"], row["subscription"]): row["factor"] for row in table}
        names = events["id"].to_pylist()
        how["score_factors"] = lambda event, ids: [
            known.get((names[event], one), 1.0) for one in ids
        ]
        how["factor_bounds"] = (0, 3)
    return engine.rank_many(events, K, **how).table()


def adjusted_by_shell(wide, query, cli, *more):
    options = []
    for name, value in ADJUSTED[query].items():
        if name == "tolerances":
            options += [
                word for near in value.items() for word in ("--tolerance", "{}={}".format(*near))
            ]
            continue
        option = f"--{name.replace('_', '-')}"
        options += [option] if value is True else [option, value]
        options += ["factors.parquet"] if name == "score_factors" else []
    files = (f"{file_of(query)}.parquet", *FILES[1:])
    cli("rank", "--top", K, *files, *options, *more, "-o", "out.parquet", cwd=wide)
    return pq.read_table(wide / "out.parquet")


def adjusted_by_spark(wide, query, spark, **how):
    from rangecast.spark import rank

    space = Space.load(wide / "space.toml")
    events = spark.read.parquet(str(wide / f"{file_of(query)}.parquet"))
    boxes = encode_subscriptions(pq.read_table(wide / "subscriptions.parquet"), space)
    asked = dict(ADJUSTED[query])
    if "score_factors" in asked:
        asked["score_factors"] = spark.read.parquet(str(wide / "factors.parquet"))
    found = rank(events, boxes, space, K, **asked, **how).toArrow()
    return found.sort_by([("event", "ascending"), ("rank", "ascending")])


@pytest.mark.parametrize("query", ADJUSTED)
def test_spans_chances_and_factors_give_the_same_rows(cli, spark, wide, query):
    found = adjusted_by_library(wide, query)
    assert found.column_names == RANKED
    expected = found.to_pylist()
    assert len(expected) > 60
    assert adjusted_by_shell(wide, query, cli).to_pylist() == expected
    by_engine = adjusted_by_shell(wide, query, cli, "--engine", "spark")
    assert by_engine.to_pylist() == expected
    for how in ({}, {"max_worker_memory": 30_000}):
        assert adjusted_by_spark(wide, query, spark, **how).to_pylist() == expected, how


def test_arrays_of_two_are_spans_on_spark_and_in_parquet(cli, spark, wide):
    """The same spans, as a column of lists."""
    expected = adjusted_by_library(wide, "overlap").to_pylist()
    events = pq.read_table(wide / "spans.parquet")
    for name in NUMBERS:
        single, low, high = (events[f"{name}{end}"].to_pylist() for end in ("", "_lo", "_hi"))
        pairs = [
            None if one is None and lo is None else [one, one] if lo is None else [lo, hi]
            for one, lo, hi in zip(single, low, high, strict=True)
        ]
        events = events.drop_columns([name, f"{name}_lo", f"{name}_hi"])
        events = events.append_column(name, pa.array(pairs))
    pq.write_table(events, wide / "lists.parquet")
    command = ("rank", "--top", K, "lists.parquet", *FILES[1:], "--span", "overlap")
    cli(*command, "-o", "out.parquet", cwd=wide)
    assert pq.read_table(wide / "out.parquet").to_pylist() == expected
    from rangecast.spark import prepare_rank, rank

    space = Space.load(wide / "space.toml")
    boxes = encode_subscriptions(pq.read_table(wide / "subscriptions.parquet"), space)
    lists = spark.read.parquet(str(wide / "lists.parquet"))
    for given in (boxes, prepare_rank(spark, boxes, space)):
        found = rank(lists, given, space, K, span="overlap").toArrow()
        order = [("event", "ascending"), ("rank", "ascending")]
        assert found.sort_by(order).to_pylist() == expected
