"""Progress of a running stream: rate, lag and matches."""

import json
from types import SimpleNamespace

import pytest
from pyspark.java_gateway import ensure_callback_server_started

from rangecast.cli.shared.option_groups import RunOptions
from rangecast.cli.shared.progress import StreamProgress
from rangecast.cli.shared.run import Run
from rangecast.spark.stream.batch import BatchOutcome, lag
from rangecast.spark.stream.run import unread_events
from rangecast.spark.stream.sinks.base import Folder
from tests.spark.stream.test_stream import THREE, csv_events, go, publish


def test_a_batch_is_shown_with_its_rate_its_lag_and_its_matches(capsys):
    counts = {"rejected": 0, "rejected_edits": 0, "steps": {"match": 7}}
    with Run.started(None, options=RunOptions()) as run:
        progress = StreamProgress(run)
        for outcome in (
            BatchOutcome(3, 2, 5, events=40, matches=7, seconds=2.0, lag=1200, **counts),
            BatchOutcome(4, 2, 5, events=1, matches=7, seconds=1.0, **counts),
        ):
            progress.add_batch(outcome)
    first, second = capsys.readouterr().err.splitlines()[:2]
    assert first == "batch 3, version 2: 40 events in, 7 matches out, 20/s, 1,200 events waiting"
    assert second == "batch 4, version 2: 1 event in, 7 matches out, 1/s"


def progress(*sources):
    """A progress of Spark, with the end and the newest offset of each source."""
    offsets = [{"endOffset": end, "latestOffset": latest} for end, latest in sources]
    return SimpleNamespace(json=json.dumps({"sources": offsets}))


TOPIC = ({"quotes": {"0": 10, "1": 7}}, {"quotes": {"0": 30, "1": 7}})
OTHER = ({"more": {"0": 1}}, {"more": {"0": 6}})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (progress(), None),
        (progress(TOPIC), 20),
        (progress(TOPIC, OTHER), 25),
        (progress(({"logOffset": 3}, None)), None),
        (progress(TOPIC, ({"logOffset": 3}, {"logOffset": 5})), None),
        (progress((None, {"quotes": {"0": 3}})), None),
    ],
)
def test_topics_tell_how_many_events_are_unread(given, expected):
    assert unread_events(given) == expected


def test_the_lag_is_what_a_batch_leaves_of_the_unread_events():
    assert [lag(20, 5), lag(20, 50), lag(None, 5)] == [15, 0, None]


class Listener:
    """A QueryExecutionListener of Spark's, which keeps what each query observed."""

    def __init__(self):
        self.observed = {}

    def onSuccess(self, name, execution, duration):  # noqa: N802
        metrics = execution.observedMetrics().iterator()
        while metrics.hasNext():
            metric = metrics.next()
            names, row = metric._2().schema().fieldNames(), metric._2()
            self.observed[metric._1()] = {name: row.get(place) for place, name in enumerate(names)}

    def onFailure(self, name, execution, error):  # noqa: N802
        pass

    class Java:
        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)


def test_listeners_of_queries_get_the_counts_of_each_step(spark, tmp_path):
    publish(tmp_path, *THREE)
    csv_events(tmp_path, "0.csv", more="e9,x,bob\n")
    listener = Listener()
    ensure_callback_server_started(spark.sparkContext._gateway)
    manager = spark._jsparkSession.listenerManager()
    manager.register(listener)
    try:
        (done,) = go(spark, tmp_path, rejected=Folder(tmp_path / "rejected"))
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        manager.unregister(listener)
    counts = {"events": 5, "matches": 7, "rows": 7, "rejected": 1}
    assert listener.observed["rangecast match"] == counts
    assert (done.events, done.matches, done.rejected) == (5, 7, 1)
