"""The steps and a stream on the PySpark that is installed, compared with a loop over single values.

    python -m tests.soak.spark_smoke 4.0

`make test-spark-versions` runs it on every supported version.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark

import rangecast.spark
from rangecast import Number, Space
from rangecast.spark import (
    FixedSet,
    Folder,
    MatchStep,
    cover,
    get_session,
    match,
    merge,
    prepare_match,
    rank,
    register_match,
    run_stream,
)
from rangecast.store.commits import read_committed

SPACE = Space([Number("x"), Number("y")])
EVENTS = [(number, number * 7 % 50 / 1.0, number * 13 % 50 / 1.0) for number in range(200)]
BOXES = [(number, number % 40 / 1.0, number % 31 / 1.0, 3.0 + number % 9) for number in range(60)]
EXPECTED = {
    (event, box)
    for event, x, y in EVENTS
    for box, left, low, side in BOXES
    if left <= x <= left + side and low <= y <= low + side
}


def main(version: str) -> None:
    """Run everything once; raise if something isn't as it should be."""
    assert pyspark.__version__.startswith(f"{version}."), pyspark.__version__
    for name in rangecast.spark.__all__:
        getattr(rangecast.spark, name)
    session = get_session("local[2]", conf={"spark.driver.memory": "1g"})
    filters = [
        (
            box,
            f"x between {left} and {left + side} and y between {low} and {low + side}",
            float(box),
        )
        for box, left, low, side in BOXES
    ]
    events = session.createDataFrame(EVENTS, "id long, x double, y double")
    texts = session.createDataFrame(filters, "id long, filter string, score double")
    for max_worker_memory in (1 << 30, 20_000):
        _verify(match(events, texts, SPACE, max_worker_memory=max_worker_memory).collect())
    best = {row["event"]: row["subscription"] for row in rank(events, texts, SPACE, k=1).collect()}
    assert best == {event: max(b for e, b in EXPECTED if e == event) for event in best}
    assert best.keys() == {event for event, _ in EXPECTED}
    assert cover(texts.drop("score"), SPACE).count() == len(BOXES)
    assert merge(
        texts.drop("score"), Space([Number(name, min=0, max=64) for name in "xy"]), 4
    ).count()
    prepared = prepare_match(session, texts, SPACE)
    if tuple(map(int, version.split("."))) >= (4, 1):
        register_match(session, prepared, SPACE, name="search")
        events.createOrReplaceTempView("events")
        _verify(session.sql("select * from search_match_rows(table(events))").collect())
    _stream(session, events, texts)
    session.stop()
    print(f"Spark {pyspark.__version__}: as expected")


def _stream(session: Any, events: Any, texts: Any) -> None:
    from rangecast.spark.steps.prepared import gathered_set

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events.write.parquet(str(folder / "events"))
        step = MatchStep(FixedSet(*gathered_set(texts, SPACE)), [Folder(folder / "matches")])
        source = session.readStream.schema(events.schema).parquet(str(folder / "events"))
        run_stream(source, [step], checkpoint=folder / "checkpoint")
        _verify(read_committed(folder / "matches").to_table().to_pylist())


def _verify(rows: Any) -> None:
    found = [(row["event"], row["subscription"]) for row in rows]
    assert len(found) == len(EXPECTED)
    assert set(found) == EXPECTED


if __name__ == "__main__":
    main(sys.argv[1])
