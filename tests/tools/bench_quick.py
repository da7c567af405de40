"""Every benchmark at a tiny size and every picture of the docs: `make bench-quick`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import frame, spark_size, spark_stream
from benchmarks import spark as on_spark
from docs import make_map_picture
from docs import make_pictures as pictures
from tests.docs.test_benchmarks import check_page


@pytest.mark.parametrize("name", [name for name in benchmarks.ABOUT if name != "spark"])
def test_everything_runs_at_a_tiny_size(tmp_path: Path, name: str) -> None:
    check_page(frame.run(name, quick=True, folder=tmp_path), name)


def test_the_contest_on_spark_runs_at_a_tiny_size(tmp_path: Path, spark: Any) -> None:
    report = frame.Report(tmp_path / "spark.md", "Made by a test.")
    on_spark.compare(report, spark, quick=True)
    assert len(report.blocks) == 2  # how long everybody took, and where the CPU goes


def test_the_hunt_for_size_verifies_what_it_answers(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = argparse.Namespace(
        subscriptions=20_000, max_worker_memory=5_000_000, events=6, verify=2, whole=5_000
    )
    monkeypatch.setattr(spark_size.console, "file", sys.stdout)
    spark_size.hunt(spark, given)
    said = capsys.readouterr().out
    assert re.search(r"shards: \d\d, .* in all", said)
    assert re.search(r"verified: all \d\d matches of 2 events", said)
    assert re.search(r"a worker took [1-9]\d+ MB", said)


def test_a_long_stream_is_measured_on_its_way(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = argparse.Namespace(batches=10, events=20, subscriptions=500)
    monkeypatch.setattr(spark_stream.console, "file", sys.stdout)
    measured = spark_stream.hunt(spark, tmp_path, given)
    assert len(measured) == 10
    assert all(megabytes > 10 for row in measured for megabytes in row)


def test_the_pictures_of_the_docs_are_those_that_are_drawn(tmp_path: Path) -> None:
    pictures.draw_all(tmp_path)
    make_map_picture.draw_map(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn <= {path.name for path in pictures.FOLDER.iterdir()}
