"""The generators: pure functions of seed and parameters, with the distributions they claim."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.model.attributes import Hierarchy
from rangecast.workloads import WORKLOADS, Workload, generate
from rangecast.workloads.draws import pick, turns, zipf
from rangecast.workloads.market import (
    CHUNK,
    SECTORS,
    chunks,
    market_space,
    quotes,
    trading_day,
)
from rangecast.workloads.ranked import regions_of
from rangecast.workloads.searches import SHAPES
from rangecast.workloads.topk import CENTRES, GAP
from rangecast.workloads.vcr import middle

SMALL = {
    "covering": {"commands": 300, "events": 50},
    "market": {"subscriptions": 300, "events": 50},
    "mics": {"subscriptions": 300, "events": 50},
    "ranked": {"subscriptions": 300, "events": 50, "attributes": 3},
    "topk": {"objects": 40, "interests": 300, "updates": 200},
    "topk-1.5d": {"objects": 40, "interests": 300, "updates": 200, "covered": 5},
    "topk-stocks": {"objects": 40, "interests": 300, "days": 3},
    "vcr": {"subscriptions": 300, "events": 50},
    "w2": {"subscriptions": 300, "events": 50, "mentioned": 2},
    "w3": {"subscriptions": 300, "events": 50},
    "w6": {"subscriptions": 300, "events": 50},
}
NAMES = sorted(SMALL)
SIZES = ("subscriptions", "events", "commands", "objects", "interests", "updates")


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
    assert sorted(WORKLOADS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_tables_other_seed_other_tables(name: str) -> None:
    first, again, other = small(name), small(name), small(name, seed=1)
    assert first.name == name
    assert first.space == again.space
    assert list(first.tables) == list(again.tables)
    for table in first.tables:
        assert first.tables[table].equals(again.tables[table])
        assert not first.tables[table].equals(other.tables[table])


@pytest.mark.parametrize("name", NAMES)
def test_tables_do_not_depend_on_each_others_sizes(name: str) -> None:
    sizes = [p.name for p in WORKLOADS[name].parameters if p.name in SIZES]
    table_of = {"subscriptions": "subscriptions", "events": "events", "interests": "interests"}
    for size in set(sizes) & set(table_of):
        more = small(name, **{size: 2 * SMALL[name][size]})
        for table, rows in small(name).tables.items():
            if table != table_of[size]:
                assert rows.equals(more.tables[table]), (size, table)


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_the_columns_of_the_files(name: str) -> None:
    workload = small(name)
    space = workload.space
    assert space is not None
    for table, rows in workload.tables.items():
        names = rows.column_names
        if table == "events":
            assert names == ["id", *space.names]
        elif table in ("subscriptions", "interests"):
            assert names[0] == "id"
            ends = [f"{a}_{end}" for a in space.names for end in ("lo", "hi")]
            wanted = {"filter"} if name == "market" else set(ends)
            optional = {"score", *(f"weight_{a}" for a in space.names)}
            assert wanted <= set(names) <= wanted | {"id"} | optional
        if table != "updates" and table != "commands":
            assert rows["id"].null_count == 0
            assert len(rows["id"].unique()) == len(rows)


@pytest.mark.parametrize("name", NAMES)
def test_events_lie_in_the_space_and_boxes_are_not_empty(name: str) -> None:
    workload = small(name)
    events = workload.tables.get("events")
    for row in [] if events is None else events.drop_columns("id").to_pylist():
        for attribute, value in row.items():
            workload.space[attribute].coordinate(value)
    for table in {"subscriptions", "interests"} & set(workload.tables):
        if name != "market":
            lo, hi = bounds(workload, table)
            assert not (lo > hi).any()
            for axis, attribute in enumerate(workload.space):
                for a, b in zip(lo[:, axis].tolist(), hi[:, axis].tolist(), strict=True):
                    assert a != a or b != b or attribute.clip(a, b) is not None


@pytest.mark.parametrize("name", NAMES)
def test_empty_tables_are_fine(name: str) -> None:
    sizes = {p.name: 0 for p in WORKLOADS[name].parameters if p.name in SIZES}
    workload, full = small(name, **sizes), small(name)
    for table, rows in workload.tables.items():
        assert len(rows) == 0
        assert rows.schema == full.tables[table].schema


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_allowed_and_described(name: str) -> None:
    generator = WORKLOADS[name]
    assert generator.description.endswith(".")
    assert generator.source
    for parameter in generator.parameters:
        assert parameter.meaning
        assert parameter.check(parameter.default, name) == parameter.default
        assert parameter.check(parameter.read(str(parameter.default)), name) == parameter.default


def test_documentation_names_every_workload_and_parameter() -> None:
    text = (Path(__file__).parent.parent / "docs" / "WORKLOADS.md").read_text(encoding="utf-8")
    rows = {r.split("|")[1].strip(): r for r in text.splitlines() if r.startswith("| `")}
    assert sorted(rows) == sorted(f"`{name}`" for name in NAMES)
    for name, generator in WORKLOADS.items():
        named = set(re.findall(r"`(\w+)=([^`]*)`", rows[f"`{name}`"]))
        assert named == {(p.name, str(p.default)) for p in generator.parameters}


def test_imports_are_light() -> None:
    code = (
        "import sys, rangecast; assert 'rangecast.workloads' not in sys.modules;"
        "import rangecast.workloads; assert not {'numba', 'lark', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: generate("markt"), "no workload 'markt': did you mean 'market'"),
        (lambda: generate("market", event=3), "no parameter 'event': did you mean 'events'"),
        (lambda: generate("market", events="3"), "takes a whole number, at least 0; given: '3'"),
        (lambda: generate("market", events=3.0), "takes a whole number"),
        (lambda: generate("market", events=True), "takes a whole number"),
        (lambda: generate("market", events=-1), "at least 0; given: -1"),
        (lambda: generate("market", seed=-1), "seed takes a whole number, at least 0"),
        (lambda: generate("market", seed="x"), "seed takes a whole number"),
        (lambda: generate("vcr", alpha=1.5), "a number, at least 0 and at most 1; given: 1.5"),
        (lambda: generate("vcr", alpha=float("nan")), "takes a number"),
        (lambda: generate("vcr", beta=0), "above 0"),
        (lambda: generate("vcr", real_events=1), "takes true or false; given: 1"),
        (lambda: generate("covering", unsubscribe_share=0.5), "below 0.5"),
        (lambda: generate("mics", event_distribution="zip"), "one of 'zipf', 'uniform'"),
        (lambda: generate("mics", size=300), "size 300 does not fit a domain of 256"),
        (lambda: generate("ranked", least_volume=0.5), "least_volume 0.5 is above"),
        (lambda: generate("w2", subscriptions=50), "50 subscriptions can't give 100.0 matches"),
        (lambda: generate("w2", mentioned=5), "5 attributes can't be mentioned: there are 4"),
        (lambda: generate("w6", least_width=0.4), "least_width 0.4 is above most_width 0.3"),
        (lambda: generate("topk", interest_distribution="correlated"), "'clustered' too"),
    ],
)
def test_errors_say_what_to_do(call: object, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        call()  # type: ignore[operator]


def test_settings_of_the_shell() -> None:
    vcr = WORKLOADS["vcr"]
    texts = ["events=1_000", " alpha = 0.5", "real_events=True"]
    assert vcr.settings(texts) == {"events": 1000, "alpha": 0.5, "real_events": True}
    assert WORKLOADS["mics"].settings(["event_distribution=uniform"]) == {
        "event_distribution": "uniform"
    }
    for text, said in [
        ("events", "name=value"),
        ("events=many", "takes a whole number, at least 0; given: 'many'"),
        ("real_events=maybe", "takes true or false; given: 'maybe'"),
        ("evnts=3", "did you mean 'events'"),
    ]:
        with pytest.raises(UsageError, match=re.escape(said)):
            vcr.settings([text])
    with pytest.raises(UsageError, match="set twice"):
        vcr.settings(["events=1", "events=2"])


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
    [(0.9, 0.1, (300, 200)), (0.9, 0.01, (2000, 1500)), (0.1, 0.1, (300, 200)), (0.5, 1.0, (7, 3))],
)
def test_vcr_shares_and_sizes(alpha: float, beta: float, extent: tuple[int, int]) -> None:
    n = 60_000
    made = generate(
        "vcr", subscriptions=n, events=n, alpha=alpha, beta=beta, width=extent[0], height=extent[1]
    )
    lo, hi = bounds(made)
    points = np.stack([column(made, "events", name) for name in "xy"], axis=1)
    corner, sides = middle(extent, beta)
    assert sides[0] * sides[1] == pytest.approx(beta * extent[0] * extent[1], rel=0.02)
    for places in (lo, points):
        assert (places >= 0).all()
        assert (places < extent).all()
        inside = ((places >= corner) & (places < np.add(corner, sides))).all(axis=1)
        assert inside.mean() == pytest.approx(1.0 if beta == 1 else alpha, abs=0.006)
        # Outside the middle every cell is as likely: the four corners of the space too.
        if alpha == beta:
            for axis in (0, 1):
                assert places[:, axis].mean() == pytest.approx((extent[axis] - 1) / 2, rel=0.01)
                counts = np.bincount(places[:, axis], minlength=extent[axis])
                assert counts.min() > 0.5 * counts.mean()
    sizes = hi - lo
    assert sizes.min(axis=0).tolist() == [1, 1]
    assert sizes.max(axis=0).tolist() == [40, 20]
    # The golden mean of simple decomposition holds for these sizes (L = 16 x 8).
    ones = np.array([bin(value).count("1") for value in range(16)])
    across = sizes[:, 0] // 16 + ones[sizes[:, 0] % 16]
    upward = sizes[:, 1] // 8 + ones[sizes[:, 1] % 8]
    assert (across * upward).mean() == pytest.approx(6.5213, rel=0.01)


def test_vcr_outside_cells_are_all_reached_and_none_inside() -> None:
    made = generate("vcr", subscriptions=0, events=20_000, width=12, height=9, alpha=0.0, beta=0.2)
    (left, bottom), (wide, high) = middle((12, 9), 0.2)
    counts = np.zeros((12, 9), dtype=int)
    np.add.at(counts, (column(made, "events", "x"), column(made, "events", "y")), 1)
    assert (counts[left : left + wide, bottom : bottom + high] == 0).all()
    counts[left : left + wide, bottom : bottom + high] = 20_000 // (108 - wide * high)
    assert counts.min() > 0.7 * counts.mean()
    assert counts.max() < 1.3 * counts.mean()


def test_vcr_real_events() -> None:
    made = small("vcr", real_events=True)
    x = column(made, "events", "x")
    assert made.space["x"].type == "number"
    assert (x != np.floor(x)).any()
    whole = column(small("vcr"), "events", "x")
    np.testing.assert_array_equal(np.floor(x), whole)


# ---------------------------------------------------------------- paper 000


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4])
def test_covering_commands(share: float) -> None:
    made = generate("covering", commands=20_000, events=10, attributes=3, unsubscribe_share=share)
    commands = made.tables["commands"].to_pylist()
    boxes = {row["id"]: row for row in made.tables["subscriptions"].to_pylist()}
    live: set[int] = set()
    leaving = 0
    for seq, row in enumerate(commands):
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
    assert leaving / len(commands) == pytest.approx(share, abs=0.012)
    assert len(boxes) == len(commands) - leaving
    lo, hi = bounds(made)
    assert lo.min() >= 0
    assert hi.max() <= 2**31 - 1
    assert lo.mean() / 2**31 == pytest.approx(1 / 3, abs=0.01)
    assert hi.mean() / 2**31 == pytest.approx(2 / 3, abs=0.01)


# ---------------------------------------------------------------- paper 003


def test_ranked_half_lengths_scores_and_weights() -> None:
    made = generate("ranked", subscriptions=50_000, events=10, attributes=2)
    lo, hi = bounds(made)
    half = (hi - lo) / 2
    ranks = np.rint(half * 100)
    np.testing.assert_allclose(half * 100, ranks, atol=1e-9)
    assert ranks.min() == 1
    assert ranks.max() == 100
    counts = np.bincount(ranks.astype(int).ravel(), minlength=101)[1:] / ranks.size
    np.testing.assert_allclose(counts, zipf(100, 0.75), atol=0.004)
    weights = np.stack([column(made, "subscriptions", f"weight_a{j}") for j in (0, 1)], axis=1)
    np.testing.assert_allclose(weights, 1 - half, atol=1e-12)
    assert (weights >= 0).all()
    np.testing.assert_array_equal(
        column(made, "subscriptions", "score"), weights[:, 0] + weights[:, 1]
    )


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_ranked_points_crowd_in_regions(skew: float) -> None:
    made = generate("ranked", subscriptions=0, events=100_000, regions=1, skew_within=skew)
    cells, counts = np.unique(np.floor(column(made, "events", "a0") * 100), return_counts=True)
    assert len(cells) == 5  # a twentieth of 100 cells
    assert (np.diff(cells) == 1).all()
    wanted = np.array([1 / 3, 1 / 2, 1, 1 / 2, 1 / 3]) ** skew
    np.testing.assert_allclose(counts / counts.sum(), wanted / wanted.sum(), atol=0.01)


def test_ranked_shares_across_regions() -> None:
    setting = {"regions": 3, "skew_across": 2.0, "least_volume": 0.01, "most_volume": 0.01}
    made = generate("ranked", seed=4, subscriptions=0, events=100_000, **setting)
    _, counts = np.unique(np.floor(column(made, "events", "a0") * 100), return_counts=True)
    np.testing.assert_allclose(sorted(counts / 100_000)[::-1], zipf(3, 2.0), atol=0.01)


def test_regions_have_the_volume_and_fit() -> None:
    first, sides = regions_of(np.random.default_rng(1), 500, 3, 100, 0.02, 0.08)
    assert (first >= 0).all()
    assert (first + sides <= 100).all()
    assert np.quantile(sides.prod(axis=1) / 1e6, 0.05) > 0.018
    assert np.quantile(sides.prod(axis=1) / 1e6, 0.95) < 0.082


# ---------------------------------------------------------------- paper 004


@pytest.mark.parametrize(("distribution", "skew"), [("zipf", 1.0), ("uniform", 0.0)])
def test_mics_distributions(distribution: str, skew: float) -> None:
    both = {"subscription_distribution": distribution, "event_distribution": distribution}
    made = generate("mics", subscriptions=100_000, events=100_000, attributes=2, **both)
    lo, hi = bounds(made)
    assert (hi - lo == 3).all()
    assert hi.max() == 255
    for axis in (0, 1):
        counts = np.bincount(lo[:, axis], minlength=253)
        np.testing.assert_allclose(counts / 100_000, zipf(253, skew), atol=0.006)
        counts = np.bincount(column(made, "events", f"a{axis}"), minlength=256)
        np.testing.assert_allclose(counts / 100_000, zipf(256, skew), atol=0.006)


# ---------------------------------------------------------------- paper 001


def test_topk_uniform() -> None:
    made = generate("topk", objects=50_000, interests=50_000, updates=0)
    x, y = column(made, "objects", "x"), column(made, "objects", "y")
    for values in (x, y):
        assert np.histogram(values, 10, (0, 1))[0] == pytest.approx([5_000] * 10, rel=0.1)
    lo, hi = bounds(made, "interests")
    assert (lo < hi).all()
    assert lo.mean() == pytest.approx(1 / 3, abs=0.01)
    assert hi.mean() == pytest.approx(2 / 3, abs=0.01)


def test_topk_random_changes_start_from_the_latest_value() -> None:
    made = generate("topk", objects=200, interests=0, updates=40_000)
    now = column(made, "objects", "y").copy()
    shares, ups = [], 0
    who, new = column(made, "updates", "id"), column(made, "updates", "y")
    for object_, value in zip(who.tolist(), new.tolist(), strict=True):
        old = now[object_]
        assert 0 <= value <= 1
        ups += value > old
        shares.append((value - old) / (1 - old) if value > old else (old - value) / old)
        now[object_] = value
    assert ups / len(who) == pytest.approx(0.5, abs=0.02)
    # Uniform on (0, y) and on (y, 1) of the value just before: the share of the way is uniform.
    assert np.histogram(shares, 10, (0, 1))[0] == pytest.approx([4_000] * 10, rel=0.1)
    assert np.bincount(who, minlength=200).min() > 100


def test_topk_gaussian_changes() -> None:
    made = generate(
        "topk", objects=20_000, interests=0, updates=20_000, change="gaussian", volatility=0.08
    )
    old = column(made, "objects", "y")
    who, new = column(made, "updates", "id"), column(made, "updates", "y")
    _, first = np.unique(who, return_index=True)
    steps = new[first] - old[who[first]]
    assert steps.std() == pytest.approx(0.01, rel=0.05)
    assert new.min() >= 0
    assert new.max() <= 1


def test_topk_clustered_objects_and_those_who_follow_them() -> None:
    for kind in ("correlated", "anti-correlated"):
        made = generate(
            "topk",
            objects=20_000,
            interests=20_000,
            updates=0,
            object_distribution="clustered",
            interest_distribution=kind,
        )
        x = column(made, "objects", "x")
        nearest = np.abs(x[:, None] - CENTRES).argmin(axis=1)
        assert np.bincount(nearest) == pytest.approx([2_000] * 10, rel=0.01)
        assert (x - CENTRES[nearest]).std() == pytest.approx(GAP / 8, rel=0.05)
        lo, hi = bounds(made, "interests")
        ends = np.concatenate([lo, hi])
        centres = CENTRES if kind == "correlated" else CENTRES[:-1] + GAP / 2
        distance = np.abs(ends - centres).min(axis=1)
        assert np.sqrt((distance**2).mean()) == pytest.approx(GAP / 8, rel=0.05)


def test_topk_clustered_interests_lie_in_ten_clusters_of_a_grid() -> None:
    setting = {"objects": 0, "interests": 20_000, "updates": 0}
    made = generate("topk", interest_distribution="clustered", spread=0.02, **setting)
    lo, hi = (ends[:, 0] for ends in bounds(made, "interests"))
    assert (lo < hi).all()
    np.testing.assert_allclose((lo * 10_000) % 1, 0.5, atol=1e-6)
    # Sigma is 0.005: everything lies within 6 sigma of ten centres, so in few squares of 0.06.
    squares = set(zip((lo // 0.06).tolist(), (hi // 0.06).tolist(), strict=True))
    assert len(squares) <= 40
    wide = generate("topk", interest_distribution="clustered", spread=50.0, **setting)
    # Where the clusters are far wider than the space, they are as good as uniform.
    assert bounds(wide, "interests")[0].mean() == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize("covered", [1_000, 100])
def test_one_and_a_half_dimensions(covered: int) -> None:
    made = generate("topk-1.5d", objects=10_000, interests=2_000, updates=10, covered=covered)
    table = made.tables["interests"]
    assert table["z_lo"].null_count == 2_000
    x = np.sort(column(made, "objects", "x"))
    lo, hi = column(made, "interests", "x_lo"), column(made, "interests", "x_hi")
    held = np.searchsorted(x, hi, side="right") - np.searchsorted(x, lo, side="left")
    short = np.searchsorted(x, lo, side="left") + covered > 10_000
    assert (held[~short] == covered).all()
    assert (hi[short] == 1.0).all()
    assert (held[short] < covered).all()
    assert short.mean() == pytest.approx(covered / 10_000, abs=0.03)


def test_stock_trace() -> None:
    made = generate("topk-stocks", interests=1_000)
    x, y = column(made, "objects", "x"), column(made, "objects", "y")
    assert len(x) == 2_031
    assert x.min() >= 1
    assert x.max() <= 5
    assert (y > 0).all()
    who = column(made, "updates", "id").reshape(59, 2_031)
    new = column(made, "updates", "y").reshape(59, 2_031)
    np.testing.assert_array_equal(np.sort(who, axis=1), np.tile(np.arange(2_031), (59, 1)))
    before = y
    for half_day in range(59):
        now = np.empty(2_031)
        now[who[half_day]] = new[half_day]
        # Ratios only change slightly, as the paper says of its trace.
        assert np.median(np.abs(now / before - 1)) < 0.03
        before = now
    lo, hi = bounds(made, "interests")
    assert (lo < hi).all()
    assert lo.min() >= 1
    assert hi.max() <= 5


# ---------------------------------------------------------------- our own


@pytest.mark.parametrize("mentioned", [4, 2, 1])
def test_w2_gives_the_matches_that_were_asked_for(mentioned: int) -> None:
    made = generate("w2", subscriptions=20_000, events=200, mentioned=mentioned, matches=50.0)
    lo, hi = bounds(made)
    assert ((~np.isnan(lo)).sum(axis=1) == mentioned).all()
    np.testing.assert_array_equal(np.isnan(lo), np.isnan(hi))
    lo, hi = np.nan_to_num(lo, nan=-np.inf), np.nan_to_num(hi, nan=np.inf)
    points = np.stack([column(made, "events", f"a{j}") for j in range(4)], axis=1)
    matches = [((lo <= p) & (p <= hi)).all(axis=1).sum() for p in points]
    assert np.mean(matches) == pytest.approx(50, rel=0.15)


def test_w3_ends_are_uniform() -> None:
    lo, hi = bounds(generate("w3", subscriptions=20_000, events=1))
    assert lo.shape == (20_000, 8)
    assert np.histogram(np.concatenate([lo, hi]), 10, (0, 1))[0] == pytest.approx(
        [32_000] * 10, rel=0.03
    )


def test_w6_mentions_four_of_twenty() -> None:
    lo, hi = bounds(generate("w6", subscriptions=20_000, events=1))
    shown = ~np.isnan(lo)
    assert (shown.sum(axis=1) == 4).all()
    assert shown.mean(axis=0) == pytest.approx([0.2] * 20, rel=0.1)
    widths = (hi - lo)[shown]
    assert widths.min() >= 0.1 - 1e-12
    assert widths.max() <= 0.3 + 1e-12
    assert widths.mean() == pytest.approx(0.2, rel=0.01)


# ---------------------------------------------------------------- market


def test_market_quotes_are_consistent() -> None:
    made = generate("market", events=50_000)
    events = made.tables["events"]
    rows = events.to_pylist()
    times = [row["time"] for row in rows]
    assert times == sorted(times)
    assert times[0].isoformat() >= "2026-01-30T14:30:00+00:00"
    assert times[-1].isoformat() <= "2026-01-30T21:00:00+00:00"
    sectors, earners, last = {}, {}, {}
    jumps, standing = [], 0
    for row in rows:
        symbol = row["symbol"]
        assert sectors.setdefault(symbol, row["sector"]) == row["sector"]
        assert earners.setdefault(symbol, row["pe"] is None) == (row["pe"] is None)
        assert (row["volume"] == 0) == row["halted"]
        before = last.get(symbol)
        if before is not None:
            jumps.append(abs(row["price"] / before["price"] - 1))
            if row["halted"] and before["halted"]:
                assert row["price"] == before["price"]
                standing += 1
        last[symbol] = row
    assert len(sectors) == 400
    assert standing > 0
    assert np.quantile(jumps, 0.99) < 0.02  # a walk, not a redraw
    assert 0.1 < np.mean(list(earners.values())) < 0.3
    opens = np.log([row["price"] for row in last.values()])
    assert opens.std() == pytest.approx(0.9, abs=0.15)  # log-normal
    busy = [t.hour * 60 + t.minute for t in times]
    assert np.mean([m < 15 * 60 for m in busy]) > 1.3 * 30 / 390  # the open is crowded


def test_market_quotes_can_be_made_chunk_by_chunk_anywhere() -> None:
    events = 2 * CHUNK + 7
    whole = generate("market", seed=3, events=events, subscriptions=0, symbols=50).tables["events"]
    assert list(chunks(events)) == [0, 1, 2]
    assert [len(chunks(n)) for n in (0, 1, CHUNK, CHUNK + 1)] == [0, 1, 1, 2]
    made = [quotes(trading_day(3, 50), chunk, events) for chunk in (2, 0, 1)]
    assert pa.Table.from_batches([made[1], made[2], made[0]]).equals(whole)
    assert whole["id"].to_pylist() == list(range(events))


# What the filter language allows; the parser itself is tested with the parser.
_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|\d+(?:\.\d+)?|\w+|<=|>=|!=|[<>=(),])")
_WORDS = {"and", "or", "not", "in", "is", "null", "between", "true", "false"}


def test_market_filters_are_of_real_shapes() -> None:
    made = generate("market", subscriptions=5_000, events=20)
    table = made.tables["subscriptions"]
    assert made.space == market_space()
    hierarchy = made.space["sector"]
    assert isinstance(hierarchy, Hierarchy)
    assert len(hierarchy.leaves) >= 12
    symbols = set()
    mentions = []
    for id_, text in zip(table["id"].to_pylist(), table["filter"].to_pylist(), strict=True):
        assert id_.split("-")[0] in SHAPES
        tokens = _TOKEN.findall(text)
        assert "".join(tokens) == re.sub(r"\s+(?=(?:[^']*'[^']*')*[^']*$)", "", text)
        assert tokens.count("(") == tokens.count(")")
        names = {t for t in tokens if t[0].isalpha()} - _WORDS
        assert names <= set(made.space.names)
        mentions.append(len(names))
        for match in re.finditer(r"sector (?:=|!=) '([^']*)'", text):
            assert match[1] in hierarchy.ranges
        for match in re.finditer(r"([\d.]+) <= \w+ < ([\d.]+)", text):
            assert float(match[1]) < float(match[2])
        for match in re.finditer(r"between (\S+) and (\S+)", text):
            low, high = (m.strip("'") for m in match.groups())
            assert (float(low) < float(high)) if low[4:5] != "-" else low < high
        symbols |= set(re.findall(r"symbol = '(\w+)'", text))
    assert set(mentions) == {2, 3, 4}
    assert len(symbols) > 200
    joined = "\n".join(table["filter"].to_pylist())
    for piece in (" or ", " in (", " != ", "not (", "is null", "is not null", " between ", "time "):
        assert piece in joined
    for concept in SECTORS:
        assert f"sector = '{concept}'" in joined
    shapes = [id_.split("-")[0] for id_ in table["id"].to_pylist()]
    for name, (share, _) in SHAPES.items():
        assert shapes.count(name) / len(shapes) == pytest.approx(share, abs=0.02)
    assert sum(share for share, _ in SHAPES.values()) == pytest.approx(1.0)


def test_market_scores_and_weights() -> None:
    table = generate("market", subscriptions=5_000, events=1).tables["subscriptions"]
    assert (table["score"].to_numpy() > 0).all()
    names = [n for n in table.column_names if n.startswith("weight_")]
    weights = np.stack([table[n].to_numpy() for n in names], axis=1)
    assert (weights > 0).all()
    assert (weights != 1).any(axis=1).mean() == pytest.approx(0.2, abs=0.03)
