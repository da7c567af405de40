"""The generators: pure functions of seed and parameters, with the papers' shapes and settings."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.model.filters.filter import Filter
from rangecast.workloads import WORKLOADS, Workload, generate
from rangecast.workloads.crowded_rectangles import middle
from rangecast.workloads.draws import pick, turns, zipf
from rangecast.workloads.market import CHUNK, chunks, quotes, trading_day
from rangecast.workloads.searches import SHAPES
from rangecast.workloads.topk import CENTRES, GAP
from tests import ROOT

BOXES = {"subscriptions": 300, "events": 50}
TOPK = {"objects": 40, "interests": 300, "updates": 200}
SMALL: dict[str, dict[str, int]] = {
    "covering": {"commands": 300, "events": 50},
    "market": BOXES,
    "equal-boxes": BOXES,
    "ranked": BOXES | {"attributes": 3},
    "topk": TOPK,
    "topk-1.5d": TOPK | {"covered": 5},
    "topk-stocks": {"objects": 40, "interests": 300, "days": 3},
    "crowded-rectangles": BOXES,
    "selective": BOXES | {"mentioned": 2},
    "wide": BOXES,
    "sparse": BOXES,
}
SIZES = {"subscriptions", "events", "commands", "objects", "interests", "updates"}
every = pytest.mark.parametrize("name", SMALL)


def small(name: str, seed: int = 0, **parameters: object) -> Workload:
    return generate(name, seed=seed, **(SMALL[name] | parameters))


def column(workload: Workload, table: str, name: str) -> np.ndarray:
    return workload.tables[table][name].to_numpy()


def bounds(workload: Workload, table: str = "subscriptions") -> tuple[np.ndarray, np.ndarray]:
    """The boxes of a wide table, (rows, d), NaN where there is no bound."""
    names = [n[:-3] for n in workload.tables[table].column_names if n.endswith("_lo")]
    lo, hi = (
        np.stack([column(workload, table, f"{n}_{end}") for n in names], axis=1)
        for end in ("lo", "hi")
    )
    return lo, hi


# ---------------------------------------------------------------- all of them


def test_every_workload_is_tested_here() -> None:
    assert sorted(WORKLOADS) == sorted(SMALL)


@every
def test_same_seed_same_tables_other_seed_other_tables(name: str) -> None:
    first, again, other = small(name), small(name), small(name, seed=1)
    assert first.name == name
    assert first.space == again.space
    for table, rows in first.tables.items():
        assert rows.equals(again.tables[table])
        assert not rows.equals(other.tables[table])


@every
def test_tables_do_not_depend_on_each_others_sizes(name: str) -> None:
    for size in {"subscriptions", "events", "interests"} & set(WORKLOADS[name].parameters):
        more = small(name, **{size: 2 * SMALL[name][size]})
        for table, rows in small(name).tables.items():
            assert rows.equals(more.tables[table]) == (table != size), (size, table)


@every
def test_tables_are_what_the_readers_take(name: str) -> None:
    made = small(name)
    for table, rows in made.tables.items():
        if table not in ("updates", "commands"):
            assert len(rows["id"].unique()) == len(rows)
    if "events" in made.tables:
        assert made.points.shape == (50, len(made.space))
    if "subscriptions" in made.tables:
        assert len(made.boxes.ids) == len(made.tables["subscriptions"])
        assert (made.boxes.lo <= made.boxes.hi).all()
    if "interests" in made.tables:
        lo, hi = bounds(made, "interests")
        assert not (lo > hi).any()


@every
def test_empty_tables_are_fine(name: str) -> None:
    empty = small(name, **dict.fromkeys(SIZES & set(WORKLOADS[name].parameters), 0))
    for table, rows in small(name).tables.items():
        assert len(empty.tables[table]) == 0
        assert empty.tables[table].schema == rows.schema


def test_documentation_names_every_workload_and_parameter() -> None:
    text = (ROOT / "docs" / "reference" / "workloads.md").read_text(encoding="utf-8")
    rows = {r.split("|")[1].strip(" `"): r for r in text.splitlines() if r.startswith("| `")}
    assert sorted(rows) == sorted(SMALL)
    for name, generator in WORKLOADS.items():
        named = set(re.findall(r"`(\w+)=([^`]*)`", rows[name]))
        assert named == {(p.name, str(p.default)) for p in generator.parameters.values()}
        assert generator.description.endswith(".")


def test_imports_are_light() -> None:
    code = "import sys, rangecast.workloads; print({'numba', 'pandas'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: generate("markt"), "no workload 'markt': did you mean 'market'"),
        (lambda: generate("market", event=3), "no parameter 'event': did you mean 'events'"),
        (lambda: generate("market", events="3"), "expected `int`, got `str`; given: '3'"),
        (lambda: generate("market", events=3.5), "expected `int`, got `float`"),
        (lambda: generate("market", events=True), "expected `int`, got `bool`"),
        (lambda: generate("market", events=np.int64(-1)), "expected `int` >= 0; given: -1"),
        (lambda: generate("market", seed=-1), "seed must be a whole number, at least 0"),
        (lambda: generate("market", seed="x"), "seed must be a whole number"),
        (lambda: generate("crowded-rectangles", alpha=1.5), "expected `float` <= 1.0; given: 1.5"),
        (lambda: generate("crowded-rectangles", alpha=float("nan")), "expected a finite number"),
        (lambda: generate("crowded-rectangles", beta=0), "expected `float` > 0.0"),
        (lambda: generate("ranked", skew_length=float("inf")), "expected a finite number"),
        (lambda: generate("covering", unsubscribe_share=0.5), "expected `float` < 0.5"),
        (lambda: generate("equal-boxes", event_distribution="zip"), "one of zipf, uniform"),
        (lambda: generate("equal-boxes", size=300), "size 300 does not fit a domain of 256"),
        (lambda: generate("ranked", min_volume=0.5), "min_volume 0.5 is above"),
        (lambda: generate("selective", subscriptions=50), "can't give 100.0 matches"),
        (lambda: generate("selective", mentioned=5), "5 attributes can't be mentioned"),
        (lambda: generate("sparse", min_width=0.4), "min_width 0.4 is above max_width 0.3"),
        (lambda: generate("topk", interest_distribution="correlated"), "'clustered' too"),
    ],
)
def test_errors_say_what_was_expected(call: object, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        call()  # type: ignore[operator]


# ---------------------------------------------------------------- draws


@given(st.lists(st.integers(0, 5), max_size=40))
def test_turns_take_everyone_in_order(who: list[int]) -> None:
    rounds = [r.tolist() for r in turns(np.array(who, dtype=np.int64))]
    assert sorted(row for rows in rounds for row in rows) == list(range(len(who)))
    for number, rows in enumerate(rounds):
        for row in rows:
            assert who[:row].count(who[row]) == number


def test_zipf_is_drawn_as_often_as_it_says() -> None:
    shares = zipf(20, 1.0)
    assert shares[0] / shares[3] == pytest.approx(4.0)
    counts = np.bincount(pick(np.random.default_rng(3), shares, 200_000), minlength=20)
    np.testing.assert_allclose(counts / 200_000, shares, atol=0.004)


# ---------------------------------------------------------------- paper 002


@pytest.mark.parametrize(
    ("alpha", "beta", "extent"),
    [(0.9, 0.1, (300, 200)), (0.9, 0.01, (2000, 1500)), (0.5, 1.0, (7, 3))],
)
def test_rectangles_crowd_in_the_middle(alpha: float, beta: float, extent: tuple[int, int]) -> None:
    sizes = {"subscriptions": 60_000, "events": 60_000, "width": extent[0], "height": extent[1]}
    made = generate("crowded-rectangles", alpha=alpha, beta=beta, **sizes)
    lo, hi = bounds(made)
    corner, sides = middle(extent, beta)
    for places in (lo, made.points):
        assert (places >= 0).all()
        assert (places < extent).all()
        inside = ((places >= corner) & (places < np.add(corner, sides))).all(axis=1)
        assert inside.mean() == pytest.approx(1.0 if beta == 1 else alpha, abs=0.006)
    assert (hi - lo).min(axis=0).tolist() == [1, 1]
    assert (hi - lo).max(axis=0).tolist() == [40, 20]


def test_outside_the_middle_every_cell_is_as_likely() -> None:
    setting = {"width": 12, "height": 9, "alpha": 0.0, "beta": 0.2}
    made = generate("crowded-rectangles", subscriptions=0, events=20_000, **setting)
    (left, bottom), (wide, high) = middle((12, 9), 0.2)
    counts = np.zeros((12, 9), dtype=int)
    np.add.at(counts, tuple(made.points.astype(int).T), 1)
    inside = np.zeros_like(counts, dtype=bool)
    inside[left : left + wide, bottom : bottom + high] = True
    assert (counts[inside] == 0).all()
    assert counts[~inside].min() > 0.7 * counts[~inside].mean()
    assert counts[~inside].max() < 1.3 * counts[~inside].mean()


def test_real_events_lie_between_the_whole_ones() -> None:
    real = small("crowded-rectangles", real_events=True).points
    assert (real != np.floor(real)).any()
    np.testing.assert_array_equal(np.floor(real), small("crowded-rectangles").points)


# ---------------------------------------------------------------- paper 000


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_covering_commands(share: float) -> None:
    made = generate("covering", commands=5_000, events=10, attributes=3, unsubscribe_share=share)
    boxes = {row["id"]: row for row in made.tables["subscriptions"].to_pylist()}
    live: set[int] = set()
    leaving = 0
    for seq, row in enumerate(made.tables["commands"].to_pylist()):
        assert row["seq"] == seq
        ends = {k: v for k, v in row.items() if k.endswith(("_lo", "_hi"))}
        if row["command"] == "subscribe":
            assert row["id"] not in live
            assert ends == {k: v for k, v in boxes[row["id"]].items() if k != "id"}
            live.add(row["id"])
        else:
            assert row["command"] == "unsubscribe"
            assert set(ends.values()) == {None}
            live.remove(row["id"])
            leaving += 1
    assert leaving / 5_000 == pytest.approx(share, abs=0.025)
    lo, hi = bounds(made)
    assert lo.mean() / 2**31 == pytest.approx(1 / 3, abs=0.02)
    assert hi.mean() / 2**31 == pytest.approx(2 / 3, abs=0.02)


# ---------------------------------------------------------------- paper 003


def test_ranked_half_lengths_scores_and_weights() -> None:
    made = generate("ranked", subscriptions=50_000, events=10, attributes=2)
    lo, hi = bounds(made)
    ranks = np.rint((hi - lo) * 50)
    np.testing.assert_allclose((hi - lo) * 50, ranks, atol=1e-9)
    counts = np.bincount(ranks.astype(int).ravel(), minlength=101)[1:] / ranks.size
    np.testing.assert_allclose(counts, zipf(100, 0.75), atol=0.004)
    weights = np.stack([column(made, "subscriptions", f"weight_a{j}") for j in (0, 1)], axis=1)
    np.testing.assert_allclose(weights, 1 - ranks / 100, atol=1e-12)
    np.testing.assert_array_equal(column(made, "subscriptions", "score"), weights.sum(axis=1))


def test_ranked_points_crowd_in_regions() -> None:
    made = generate("ranked", subscriptions=0, events=100_000, regions=1, skew_within=1.0)
    cells, counts = np.unique(np.floor(column(made, "events", "a0") * 100), return_counts=True)
    assert (np.diff(cells) == 1).all()
    wanted = np.array([1 / 3, 1 / 2, 1, 1 / 2, 1 / 3])  # a twentieth of 100 cells
    np.testing.assert_allclose(counts / counts.sum(), wanted / wanted.sum(), atol=0.01)


# ---------------------------------------------------------------- paper 004


@pytest.mark.parametrize(("distribution", "skew"), [("zipf", 1.0), ("uniform", 0.0)])
def test_equal_boxes_follow_their_distribution(distribution: str, skew: float) -> None:
    both = {"subscription_distribution": distribution, "event_distribution": distribution}
    made = generate("equal-boxes", subscriptions=100_000, events=100_000, attributes=1, **both)
    assert (made.boxes.hi - made.boxes.lo == 3).all()
    for values, count in ((made.boxes.lo, 253), (made.points, 256)):
        counts = np.bincount(values[:, 0].astype(int), minlength=count)
        np.testing.assert_allclose(counts / 100_000, zipf(count, skew), atol=0.006)


# ---------------------------------------------------------------- paper 001


def test_topk_changes_start_from_the_latest_value() -> None:
    made = generate("topk", objects=200, interests=0, updates=40_000)
    now = column(made, "objects", "value").copy()
    shares, ups = [], 0
    who, new = column(made, "updates", "id"), column(made, "updates", "value")
    for object_, value in zip(who.tolist(), new.tolist(), strict=True):
        old = now[object_]
        ups += value > old
        shares.append((value - old) / (1 - old) if value > old else (old - value) / old)
        now[object_] = value
    assert ups / len(who) == pytest.approx(0.5, abs=0.02)
    # Uniform on (0, y) and on (y, 1) of the value just before: the share of the way is uniform.
    assert np.histogram(shares, 10, (0, 1))[0] == pytest.approx([4_000] * 10, rel=0.1)


def test_topk_gaussian_changes() -> None:
    change = {"change": "gaussian", "volatility": 0.08}
    made = generate("topk", objects=20_000, interests=0, updates=20_000, **change)
    who, new = column(made, "updates", "id"), column(made, "updates", "value")
    _, first = np.unique(who, return_index=True)
    steps = new[first] - column(made, "objects", "value")[who[first]]
    assert steps.std() == pytest.approx(0.01, rel=0.05)
    assert 0 <= new.min() <= new.max() <= 1


@pytest.mark.parametrize(
    ("kind", "centres"), [("correlated", CENTRES), ("anti-correlated", CENTRES[:-1] + GAP / 2)]
)
def test_topk_interests_follow_the_clusters_or_avoid_them(kind: str, centres: np.ndarray) -> None:
    both = {"object_distribution": "clustered", "interest_distribution": kind}
    made = generate("topk", objects=20_000, interests=20_000, updates=0, **both)
    for places, middles in (
        (column(made, "objects", "position"), CENTRES),
        (np.concatenate(bounds(made, "interests"))[:, 0], centres),
    ):
        distance = np.abs(places[:, None] - middles).min(axis=1)
        assert np.sqrt((distance**2).mean()) == pytest.approx(GAP / 8, rel=0.05)


def test_topk_clustered_interests_lie_in_ten_clusters_of_a_grid() -> None:
    setting = {"objects": 0, "interests": 20_000, "updates": 0, "spread": 0.02}
    made = generate("topk", interest_distribution="clustered", **setting)
    lo, hi = (ends[:, 0] for ends in bounds(made, "interests"))
    np.testing.assert_allclose((lo * 10_000) % 1, 0.5, atol=1e-6)
    # Sigma is 0.005: everything lies within 6 sigma of ten centres, so in few squares of 0.06.
    assert len(set(zip((lo // 0.06).tolist(), (hi // 0.06).tolist(), strict=True))) <= 40


def test_one_and_a_half_dimensions() -> None:
    made = generate("topk-1.5d", objects=10_000, interests=2_000, updates=10, covered=1_000)
    assert made.tables["interests"]["z_lo"].null_count == 2_000
    x = np.sort(column(made, "objects", "x"))
    lo, hi = column(made, "interests", "x_lo"), column(made, "interests", "x_hi")
    held = np.searchsorted(x, hi, side="right") - np.searchsorted(x, lo, side="left")
    short = np.searchsorted(x, lo, side="left") + 1_000 > 10_000
    assert (held[~short] == 1_000).all()
    assert (hi[short] == 1.0).all()


def test_stock_trace() -> None:
    made = generate("topk-stocks", interests=1_000)
    before, places = column(made, "objects", "value"), column(made, "objects", "position")
    assert len(before) == len(np.unique(places)) == 2_031  # all x differ, as the paper says
    assert places.min() >= 1.0
    assert places.max() <= 5.0
    who = column(made, "updates", "id").reshape(59, 2_031)
    new = column(made, "updates", "value").reshape(59, 2_031)
    for half_day in range(59):
        now = np.full(2_031, np.nan)
        now[who[half_day]] = new[half_day]  # every stock once
        # Ratios only change slightly, as the paper says of its trace.
        assert np.median(np.abs(now / before - 1)) < 0.03
        before = now


# ---------------------------------------------------------------- our own


@pytest.mark.parametrize("mentioned", [4, 2, 1])
def test_selective_gives_the_matches_that_were_asked_for(mentioned: int) -> None:
    setting = {"mentioned": mentioned, "matches": 50.0}
    made = generate("selective", subscriptions=20_000, events=200, **setting)
    lo, hi = made.boxes.lo, made.boxes.hi
    assert (np.isfinite(lo).sum(axis=1) == mentioned).all()
    matches = [((lo <= p) & (p <= hi)).all(axis=1).sum() for p in made.points]
    assert np.mean(matches) == pytest.approx(50, rel=0.15)


def test_ends_of_wide_boxes_are_uniform() -> None:
    ends = np.concatenate(bounds(generate("wide", subscriptions=20_000, events=1)))
    assert np.histogram(ends, 10, (0, 1))[0] == pytest.approx([32_000] * 10, rel=0.03)


def test_sparse_boxes_mention_four_of_twenty() -> None:
    lo, hi = bounds(generate("sparse", subscriptions=20_000, events=1))
    shown = ~np.isnan(lo)
    assert (shown.sum(axis=1) == 4).all()
    assert shown.mean(axis=0) == pytest.approx([0.2] * 20, rel=0.1)
    widths = (hi - lo)[shown]
    assert 0.1 - 1e-12 <= widths.min() <= widths.max() <= 0.3 + 1e-12


# ---------------------------------------------------------------- market


def test_market_quotes_are_consistent() -> None:
    rows = generate("market", events=20_000).tables["events"].to_pylist()
    times = [row["time"] for row in rows]
    assert times == sorted(times)
    assert times[0].isoformat() >= "2026-01-30T14:30:00+00:00"
    assert times[-1].isoformat() <= "2026-01-30T21:00:00+00:00"
    last: dict[str, dict] = {}
    jumps, standing = [], 0
    for row in rows:
        assert (row["volume"] == 0) == row["halted"]
        before = last.setdefault(row["symbol"], row)
        assert before["sector"] == row["sector"]
        assert (before["pe"] is None) == (row["pe"] is None)
        jumps.append(abs(row["price"] / before["price"] - 1))
        if row is not before and row["halted"] and before["halted"]:
            assert row["price"] == before["price"]
            standing += 1
        last[row["symbol"]] = row
    assert len(last) == 400
    assert standing > 0
    assert np.quantile(jumps, 0.99) < 0.02  # a walk, not a redraw


def test_market_quotes_can_be_made_chunk_by_chunk_anywhere() -> None:
    events = 2 * CHUNK + 7
    whole = generate("market", seed=3, events=events, subscriptions=0, symbols=50).tables["events"]
    assert list(chunks(events)) == [0, 1, 2]
    assert [len(chunks(n)) for n in (0, 1, CHUNK, CHUNK + 1)] == [0, 1, 1, 2]
    made = [quotes(trading_day(3, 50), chunk, events) for chunk in (2, 0, 1)]
    assert pa.Table.from_batches([made[1], made[2], made[0]]).equals(whole)
    assert whole["id"].to_pylist() == list(range(events))


def test_market_searches_are_filters_of_every_shape() -> None:
    made = generate("market", subscriptions=3_000, events=1)
    table = made.tables["subscriptions"]
    texts = table["filter"].to_pylist()
    for text in texts:
        assert Filter.parse(text, made.space).boxes
    joined = "\n".join(texts)
    for piece in (" or ", " in (", " != ", "not (", "is null", "is not null", " between ", "time "):
        assert piece in joined
    shapes = [name.split("-")[0] for name in table["id"].to_pylist()]
    for name, (share, _) in SHAPES.items():
        assert shapes.count(name) / len(shapes) == pytest.approx(share, abs=0.02)
    assert (table["score"].to_numpy() > 0).all()
    weights = np.stack([table[n].to_numpy() for n in table.column_names if "weight_" in n], axis=1)
    assert (weights > 0).all()
    assert (weights != 1).any(axis=1).mean() == pytest.approx(0.2, abs=0.03)
