"""The harness is fair, its peers are right, and every benchmark runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import (
    compare,
    frame,
    match,
    match_peers,
    rank_peers,
    server_beside,
    spark_size,
    started,
)
from benchmarks.harness import Case, Contestant, contest, expected
from benchmarks.peers import MatchPeer, Peer, RankPeer, finite
from benchmarks.server_load import Load, Measured, Theirs
from benchmarks.started import Unavailable
from experiments.timing import DisagreementError, race
from rangecast import Number, Space
from rangecast.kernels.arrays import F64
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.rank.scan import Scan as RankScan
from rangecast.report.markdown import Page, Table, cell
from rangecast.workloads import generate

match_peer = pytest.mark.parametrize("peer", match_peers.PEERS, ids=lambda peer: peer.__name__)
rank_peer = pytest.mark.parametrize("peer", rank_peers.PEERS, ids=lambda peer: peer.__name__)

# ---------------------------------------------------------------- peers


def space_of(dimensions: int) -> Space:
    return Space(Number(f"a{j}", min=-10, max=10) for j in range(dimensions))


def touching(dimensions: int) -> tuple[Boxes, F64]:
    """Boxes on a small grid, some without width, with events on their edges and just beside."""
    rng = np.random.default_rng(dimensions)
    lo = rng.integers(-3, 3, (60, dimensions)) / 3
    hi = lo + rng.integers(0, 5, (60, dimensions)) / 3
    free = rng.random(lo.shape) < 0.3
    lo[free], hi[free] = -np.inf, np.inf
    corners = np.where(np.isinf(lo), 0.0, lo), np.where(np.isinf(hi), 0.0, hi)
    edges = np.concatenate(corners)
    beside = [np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    return Boxes.of(lo, hi), np.concatenate([edges, *beside])


def there(peer: type[Peer]) -> None:
    if why := peer.missing():
        pytest.skip(why)


def found(peer: MatchPeer, points: F64) -> list[set[int]]:
    events, rows = peer.pairs(peer.match(points))
    assert len(set(zip(events.tolist(), rows.tolist(), strict=True))) == len(rows), "a pair twice"
    return [set(rows[events == event].tolist()) for event in range(len(points))]


def right(boxes: Boxes, points: F64) -> list[set[int]]:
    return [set(ids.tolist()) for ids in match.oracle(boxes, points)]


@match_peer
def test_a_peer_agrees_with_the_oracle_on_touching_edges(peer: type[MatchPeer]) -> None:
    there(peer)
    for dimensions in {2, 4, 12} & set(peer.dimensions):
        boxes, points = touching(dimensions)
        one = peer(*finite(boxes, space_of(dimensions)))
        truth = right(boxes, points)
        assert found(one, points) == truth
        for event in (0, len(points) // 2, len(points) - 1):
            assert set(one.rows(one.match_one(points[event])).tolist()) == truth[event]
        one.close()


@match_peer
def test_a_peer_agrees_on_whole_numbers_and_when_nothing_matches(peer: type[MatchPeer]) -> None:
    there(peer)
    made = generate("crowded-rectangles", subscriptions=200, events=1)
    one = peer(*finite(made.boxes, made.space))
    points = np.concatenate([made.boxes.lo[:40], made.boxes.hi[:40], [[-5.0, -5.0]]])
    assert found(one, points) == right(made.boxes, points)
    assert found(one, points[-1:]) == [set()]
    one.close()


@match_peer
def test_a_peer_agrees_after_replacing(peer: type[MatchPeer]) -> None:
    there(peer)
    boxes, points = touching(2)
    space = space_of(2)
    one = peer(*finite(boxes, space))
    rows = np.array([3, 17, 40])
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    lo[rows], hi[rows] = [-2.0, -2.0], [2.0, 0.1]
    after = Boxes.of(lo, hi)
    one.replace(rows, *finite(after.take(rows), space))
    assert found(one, points) == right(after, points)
    one.close()


@rank_peer
@pytest.mark.parametrize("dimensions", [1, 3])
def test_a_peer_ranks_as_the_oracle_does(peer: type[RankPeer], dimensions: int) -> None:
    there(peer)
    if dimensions not in peer.dimensions:
        return
    rng = np.random.default_rng(dimensions)
    lo = rng.integers(0, 20, (1500, dimensions)) / 3
    hi = lo + rng.integers(0, 15, (1500, dimensions)) / 3
    points = rng.integers(0, 35, (40, dimensions)) / 3  # on the edges of boxes, most of them
    one = peer(lo, hi)
    boxes = Boxes.of(lo, hi)  # all scores equal: a row's number is its rank
    ranked = one.best(points, 7)
    for event, best in enumerate(RankScan(boxes).rank(points, 7)):
        assert ranked[event].tolist() == best.rows.tolist()
    one.close()


# ---------------------------------------------------------------- the harness


def scans(boxes: Boxes, forget: int | None = None) -> Contestant:
    """The scan as a peer; it may forget a row."""
    kept = np.arange(boxes.rows) if forget is None else np.delete(np.arange(boxes.rows), forget)
    some = boxes.take(kept)

    def ids(matches: object, places: list[int]) -> list[np.ndarray]:
        return [np.sort(kept[matches.of(place)]) for place in places]  # type: ignore[attr-defined]

    return Contestant("a scan", "peer", Scan(some).match, ids, work_of=lambda found: found.work)


def test_a_contest_measures_everyone() -> None:
    boxes, points = touching(3)
    oracle: Callable = lambda some: match.oracle(boxes, some)  # noqa: E731
    one, other = contest([scans(boxes), scans(boxes)], points, oracle, rounds=2, seconds=0.001)
    assert len(one.batch.runs) == len(one.single.runs) == 2
    assert one.work.tested == boxes.rows * one.events
    other.batch.runs, other.single.runs = [0.5], [2.0]
    one.batch.runs, one.single.runs = [1.0, 3.0], [1.0]
    one.kind = "structure"
    case = Case("name", "about", "wide", 60, everyone=[one, other], auto="a scan")
    assert one.batch.spread == 3.0
    assert (case.ratio(one), case.single_ratio(one)) == (0.5, 2.0)
    table = case.table("k = 1", {"tested": lambda work: work.tested})
    assert table.headings[-1] == "tested"
    assert [len(row) for row in table.rows] == [len(table.headings)] * 2


def test_a_contestant_that_disagrees_is_an_error() -> None:
    boxes, points = touching(3)
    forgotten = int(match.oracle(boxes, points[:1])[0][0])
    with pytest.raises(DisagreementError, match=rf"a scan gives .* missing \[{forgotten}\]"):
        contest(
            [scans(boxes, forgotten)],
            points,
            lambda some: match.oracle(boxes, some),
            rounds=1,
            seconds=0.001,
        )
    with pytest.raises(DisagreementError, match="b and a give different answers"):
        race({"a": lambda: lambda: 1, "b": lambda: lambda: 2}, same=lambda one, two: one == two)


def test_expectations_that_are_missed_are_shown() -> None:
    assert expected(3.0) == ""
    assert expected(3.0, least=2) == "2"
    assert expected(3.0, least=70) == "70 (missed)"
    assert expected(3.0, most=25_000) == "25,000"
    assert expected(3.0, most=1.5) == "1.5 (missed)"


# ---------------------------------------------------------------- pages


def test_numbers_are_shown_with_the_digits_that_count() -> None:
    values = [
        None,
        float("nan"),
        "text",
        12345,
        np.int64(7),
        1234.5,
        123.45,
        12.345,
        4.0,
        0.0123,
        1e-7,
    ]
    shown = ["", "", "text", "12,345", "7", "1,234", "123.5", "12.3", "4", "0.0123", "0.000"]
    assert [cell(value) for value in values] == shown


def test_a_page_has_its_blocks_in_order(tmp_path: Path) -> None:
    page = Page(tmp_path / "new" / "page.md")
    page.text("# Title\n\n" + "word " * 30)
    top = len(page.blocks)
    page.table(Table("Second", ["a", "b"], [["x", 1]]))
    page.table(Table("First", ["a"], []), at=top)
    assert page.picture("plot.png", "A plot") == tmp_path / "new" / "plot.png"
    page.write()
    text = page.path.read_text()
    assert max(map(len, text.splitlines())) <= 100
    assert text.endswith(
        "## First\n\n| a |\n| --- |\n\n## Second\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n\n"
        "![A plot](plot.png)\n"
    )


# ---------------------------------------------------------------- peers of the server


def test_a_peer_of_the_server_is_compared_by_rates_and_times_or_told_with_why(
    tmp_path: Path,
) -> None:
    def slow(*_: object) -> list[Theirs]:
        return [Theirs("inserts", "edits", 50.0), Theirs("the same, p99", "p99", 20.0)]

    def missing(*_: object) -> list[Theirs]:
        raise Unavailable("it isn't installed\n/some/path")

    report = frame.Report(tmp_path / "server.md", "Made by a test.")
    peers = [server_beside.Peer("Slow", "slow", slow), server_beside.Peer("Gone", "gone", missing)]
    ours = [Measured("edits", 200.0), Measured("p99", 10.0, "ms")]
    load = Load.made(np.random.default_rng(1), 5, 5)
    server_beside.beside(report, peers, load, lambda: ours, quick=True)
    assert report.blocks[-1].splitlines()[2:] == [
        "| Slow: inserts | 50/s | 200/s | 4 |",
        "| Slow: the same, p99 | 20.0 ms | 10.0 ms | 2 |",
        "| Gone: not run, it isn't installed |  |  |  |",
    ]


def test_ids_that_a_peer_of_the_server_gives_are_compared() -> None:
    load = Load(np.array([[0.0], [0.5]]), np.array([[1.0], [0.6]]), np.array([[0.5], [0.7]]))
    load.check("it", [["s1", "s0"], ["s0"]])
    for wrong in ([["s0"], ["s0"]], [["s0", "s1"], ["s0", "s0"]], [["s0", "s1"], ["s1"]]):
        with pytest.raises(DisagreementError, match="it gives"):
            load.check("it", wrong)


# ---------------------------------------------------------------- everything runs


@pytest.mark.process
def test_a_benchmark_runs_at_a_tiny_size(tmp_path: Path) -> None:
    """The others take minutes: `make bench-quick`."""
    check_page(frame.run("server", quick=True, folder=tmp_path), "server")


def check_page(page: Path, name: str) -> None:
    text = page.read_text()
    assert f"Made by `python -m benchmarks {name} --quick`" in text
    assert text.count("| ---") > 1
    for picture in (line for line in text.splitlines() if line.startswith("![")):
        assert (page.parent / picture.rpartition("(")[2].rstrip(")")).stat().st_size > 5_000


def test_the_hunt_for_size_finds_wrong_answers() -> None:
    expected = [{1, 2}, set()]
    for answers, told in (
        ([[2, 1], []], None),
        ([[1, 2, 2], []], "event 0: 3, not 2"),
        ([[1, 3], []], "event 0: 2, not 2"),
        ([[1, 2], [5]], "event 1: 1, not 0"),
        ([[1, 2]], "1 events were answered, not 2"),
    ):
        lists = pa.array(answers, pa.list_(pa.int64()))
        found = pa.table({"event": range(len(answers)), "subscriptions": lists})
        if told is None:
            spark_size.need_equal(found, expected)
        else:
            with pytest.raises(DisagreementError, match=told):
                spark_size.need_equal(found, expected)


# ---------------------------------------------------------------- an earlier run

BEFORE = """
# A page

## How many times as long the best peer takes

| workload | best peer | Engine | expected | Engine |
| --- | ---: | ---: | ---: | ---: |
| W1 | rtree | 10.0 | 8 | 3.0 |

## Speed

| what | us an event | events/s | spread | tested |
| --- | ---: | ---: | ---: | ---: |
| single | 2.0 | 1,000 | 1.0 | 5 |
| single | 4.0 | 500 | 1.0 | 5 |
"""


def test_what_is_worse_than_in_an_earlier_run_is_named(tmp_path):
    after = BEFORE.replace("10.0", "8.0").replace("3.0", "3.5").replace("| 2.0 |", "| 2.5 |")
    after = after.replace("500", "300").replace("| 5 |", "| 50 |").replace("1.0", "3.0")
    found = list(compare.worse(BEFORE, after))
    assert [(number.row, number.heading, times) for number, _, _, times in found] == [
        ("W1", "Engine", 1.25),
        ("single", "us an event", 1.25),
        ("single (2)", "events/s", 500 / 300),
    ]
    (tmp_path / "before").mkdir()
    for folder, text in ((tmp_path / "before", BEFORE), (tmp_path, after)):
        (folder / "page.md").write_text(text)
    table = compare.complaints(tmp_path / "before", tmp_path / "page.md")
    assert [row[-1] for row in table.rows] == ["1.25", "1.25", "1.67"]
    assert compare.complaints(tmp_path, tmp_path / "page.md") is None


CALLS = """
## Matching

| workload | structure us | of the structure's rate | at least | x best peer |
| --- | ---: | ---: | ---: | ---: |
| W1 | 2.0 | 0.60 | 0.5 | 5.0 |

## The top 20

| | batch us | times untouched | at most | rank us | times untouched |
| --- | ---: | ---: | ---: | ---: | ---: |
| 100 edits | 1.0 | 1.2 | 1.3 | 40.0 | 1.1 |

## Bytes

| workload | structure bytes | times the structure |
| --- | ---: | ---: |
| W1 | 80.0 | 1.4 |

## Threads

| call | wall us, 1 thread | times as fast | processor us, 8 threads | times as much |
| --- | ---: | ---: | ---: | ---: |
| match | 20.0 | 1.9 | 11.0 | 1.0 |
"""


@pytest.mark.parametrize(
    ("before", "after", "heading"),
    [
        ("0.60", "0.45", "of the structure's rate"),
        ("5.0 |", "4.0 |", "x best peer"),
        ("1.2 |", "1.5 |", "times untouched"),
        ("| 1.1 |", "| 1.4 |", "times untouched (2)"),
        ("| 1.4 |", "| 1.8 |", "times the structure"),
        ("| 1.0 |\n", "| 1.3 |\n", "times as much"),
        ("20.0", "60.0", None),
        ("1.9", "0.9", None),
        ("| 1.3 |", "| 2.3 |", None),
    ],
)
def test_a_ratio_of_calls_that_is_a_fifth_worse_is_named(before, after, heading):
    assert CALLS.count(before) == 1
    found = [number.heading for number, *_ in compare.worse(CALLS, CALLS.replace(before, after))]
    assert found == ([] if heading is None else [heading])


MEASURED = """
import runpy, sys, types

def run(report, *, quick):
    report.begin("Calls that users make", "Measured elsewhere.")
    report.blocks.append(open("measured.md").read())

sys.modules["benchmarks.calls"] = types.SimpleNamespace(run=run)
runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
"""
"""The command line, with numbers from a file instead of those that a benchmark measures."""


@pytest.mark.process
@pytest.mark.parametrize(
    ("after", "status"),
    [(CALLS, 0), (CALLS.replace("0.60", "0.51"), 0), (CALLS.replace("0.60", "0.45"), 1)],
)
def test_the_exit_status_says_whether_a_run_is_a_fifth_worse(tmp_path, after, status):
    def measured(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "measured.md").write_text(text)
        command = [sys.executable, "-c", MEASURED, "calls", "--output", *arguments]
        more = {"env": os.environ | {"PYTHONPATH": str(frame.ROOT)}, "cwd": tmp_path}
        return subprocess.run(command, check=False, capture_output=True, text=True, **more)

    assert measured(CALLS, "before").returncode == 0
    done = measured(after, "after", "--compare", "before")
    assert done.returncode == status, done.stderr
    assert ("worse than in before by more than 20%" in done.stdout) == bool(status)
    assert ("Matching: W1" in done.stdout) == bool(status)
    assert (tmp_path / "after" / "calls.md").is_file()
    absent = measured(after, "after", "--compare", "absent")
    assert absent.returncode == 2
    assert "there is no page to compare with: absent/calls.md" in absent.stderr


def test_processes_that_fetch_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(started, "CACHE", tmp_path)

    def fetch(folder: Path) -> None:
        (folder / "jar").write_text("ours")
        (tmp_path / "peer").mkdir()
        (tmp_path / "peer" / "jar").write_text("that of the process that was first")

    folder = started.fetched("peer", fetch)
    assert (folder / "jar").read_text() == "that of the process that was first"
    assert [path.name for path in tmp_path.iterdir()] == ["peer"]
