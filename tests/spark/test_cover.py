"""The step `cover` on Spark: the library's own answer, however space is cut."""

import gc

import numpy as np
import pyarrow as pa
import pytest

from rangecast import Boxes, Integer, Number, RangecastError, Space
from rangecast.cover import covered_by
from rangecast.errors import RejectedRowError
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.spark import cover
from rangecast.spark.steps import cover as covering
from rangecast.spark.subscriptions.encode import encode
from rangecast.spark.subscriptions.packed_boxes import pack
from rangecast.workloads import generate
from tests.support.adversarial import cases


def space_of(d):
    return Space(Number(f"a{j}") for j in range(d))


def wide_table(boxes):
    """Subscriptions of one box each as a table; a side without a bound is null."""
    largest = np.finfo(np.float64).max
    columns = {"id": boxes.ids, "seq": pa.array(np.arange(boxes.rows))}
    for j in range(boxes.dimensions):
        lo, hi = boxes.lo[:, j], boxes.hi[:, j]
        columns[f"a{j}_lo"] = pa.array(lo, mask=np.isinf(lo) | (lo == -largest))
        columns[f"a{j}_hi"] = pa.array(hi, mask=np.isinf(hi) | (hi == largest))
    return pa.table(columns)


def check(spark, table, space, **options):
    """The same as the library on the same table."""
    boxes = encode_subscriptions(table, space)
    ids = boxes.ids.to_pylist()
    expected = {
        ids[row]: None if by < 0 else ids[by] for row, by in enumerate(covered_by(boxes).tolist())
    }
    found = cover(spark.createDataFrame(table), space, **options)
    assert found.columns == ["subscription", "covered_by"]
    rows = found.collect()
    assert len(rows) == len(expected)
    assert {row["subscription"]: row["covered_by"] for row in rows} == expected


def random_boxes(n, d, values):
    rng = np.random.default_rng(n + d)
    ends = np.sort(rng.integers(0, values, (n, d, 2)), axis=2).astype(float)
    lo, hi = ends[..., 0], ends[..., 1]
    free = rng.random((n, d)) < 0.3
    lo[free], hi[free] = -np.inf, np.inf
    return Boxes.of(lo, hi, ids=[f"s{row:05}" for row in range(n)])


def test_a_set_cut_into_many_partitions(spark):
    """Groups of a few hundred boxes: most of what covers one lives elsewhere."""
    boxes = random_boxes(4000, 3, 1000)
    check(spark, wide_table(boxes), space_of(3), group_bytes=60_000)


@pytest.mark.parametrize("alternatives", [1, 3])
def test_visitors_come_in_pieces_and_a_worker_holds_one_at_a_time(spark, monkeypatch, alternatives):
    """Run the function of the workers here, on their rows: no piece exceeds the bound."""
    rng = np.random.default_rng(1)
    lo = rng.integers(0, 200, (1500, 2)).astype(float)
    hi = lo + rng.integers(0, 60, lo.shape)
    boxes = Boxes.of(lo, hi, owner=np.arange(1500) // alternatives)
    filters = [
        " or ".join(
            " and ".join(f"a{j} between {lo[i, j]} and {hi[i, j]}" for j in range(2))
            for i in range(first, first + alternatives)
        )
        for first in range(0, 1500, alternatives)
    ]
    rows = np.arange(boxes.rows)
    table = pa.table({"id": rows, "seq": rows, "filter": filters})
    most = 100
    encoded = encode(spark.createDataFrame(table), space_of(2)).rows
    judged, cut = covering._uncovered_by_group(encoded, 2, most)
    met = covering._with_visitors(judged.drop("kept"), judged.drop("kept"), 2, cut)
    pieces, compare = [], covering.earliest_coverers

    def spy(visitors, *others):
        pieces.append(len(visitors.lo))
        return compare(visitors, *others)

    monkeypatch.setattr(covering, "earliest_coverers", spy)
    parts = met.coalesce(1).sortWithinPartitions("group", "kind", "seq", "id").toArrow()
    batches = parts.combine_chunks().to_batches(max_chunksize=70)
    judged.unpersist()

    def named(most):
        pieces.clear()
        rows = pa.Table.from_batches(covering._named(iter(batches), 2, most)).to_pydict()
        assert len(rows["subscription"]) == boxes.rows
        return dict(zip(rows["subscription"], rows["covered_by"], strict=True))

    whole = named(10**9)
    assert len(pieces) <= cut.groups
    assert max(pieces) > 2 * most
    assert named(most) == whole
    assert max(pieces) <= most
    assert len(pieces) > 2 * cut.groups
    expected = covered_by(encode_subscriptions(table, space_of(2))) < 0
    assert [whole[row] is None for row in rows] == expected.tolist()


def test_a_visitor_of_more_boxes_than_a_piece_may_have_comes_alone():
    sizes = [1, 5, 1, 1, 1]
    binary = pack(np.zeros((9, 1)), np.ones((9, 1)), np.array(sizes))
    columns = {"group": np.zeros(5, np.int32), "kind": np.ones(5, np.int8)}
    batch = pa.record_batch({**columns, "seq": np.arange(5.0), "id": np.arange(5), "boxes": binary})
    found = covering._pieces(iter([batch.slice(0, 3), batch.slice(3)]), 2)
    pieces = [table["id"].to_pylist() for _, table in found if table is not None]
    assert pieces == [[0], [1], [2], [3, 4]]


def test_a_group_has_ended_before_the_next_one_is_read():
    """So that a worker never holds two: those at home, and their visitors."""
    kinds = [(0, 0), (0, 1), (3, 1), (4, 0), (5, 0), (5, 1)]
    read = []
    box = pack(np.zeros((1, 1)), np.ones((1, 1)), np.array([1]))

    def batches():
        for place, (group, kind) in enumerate(kinds):
            read.append(group)
            columns = {"group": np.array([group], np.int32), "kind": np.array([kind], np.int8)}
            row = {"seq": [float(place)], "id": [place], "boxes": box}
            yield pa.record_batch({**columns, **row})

    events = [(kind, len(read)) for kind, _ in covering._pieces(batches(), 9)]
    home, visit, end = covering._HOME, covering._VISIT, covering._END
    assert events == [
        (end, 1), (home, 2), (visit, 3), (end, 3), (visit, 4), (end, 4), (home, 5), (end, 5),
        (home, 6), (visit, 6), (end, 6),
    ]  # fmt: skip


def test_only_the_answer_stays_on_the_disks_and_goes_with_its_dataframe(spark):
    def kept_data():
        return set(spark.sparkContext._jsc.getPersistentRDDs())

    before = kept_data()
    rows = spark.createDataFrame(wide_table(random_boxes(300, 2, 50)))
    found = cover(rows, space_of(2))
    assert len(kept_data() - before) == 1
    assert found.count() == 300
    del found
    gc.collect()
    assert not kept_data() - before
    wrong = spark.createDataFrame(pa.table({"id": [1], "filter": ["a0 >"]}))
    with pytest.raises(RangecastError, match="a0 >"):
        cover(wrong, space_of(2))
    assert not kept_data() - before


def test_equal_boxes_and_whole_numbers_for_ids(spark):
    boxes = random_boxes(600, 2, 5)
    table = wide_table(boxes).set_column(0, "id", pa.array(np.arange(600)[::-1]))
    check(spark, table, space_of(2), group_bytes=30_000)


def test_without_seq_the_order_is_that_of_ids(spark):
    table = pa.table({"id": [9, 3, 5], "a0_lo": [1.0, 1.0, 1.5], "a0_hi": [2.0, 2.0, 1.7]})
    found = cover(spark.createDataFrame(table), space_of(1)).collect()
    assert {row["subscription"]: row["covered_by"] for row in found} == {9: 3, 3: None, 5: 3}


@pytest.mark.parametrize("name", ["all equal", "all nested"])
def test_adversarial_sets(spark, name):
    boxes = cases()[name][0]
    check(spark, wide_table(boxes), space_of(boxes.dimensions), group_bytes=20_000)


def test_alternatives_and_strings(spark):
    made = generate("market", subscriptions=800, events=1)
    check(
        spark,
        made.tables["subscriptions"].append_column("seq", pa.array(np.arange(800))),
        made.space,
        group_bytes=30_000,
    )


def test_mistakes_are_named(spark):
    space = Space([Integer("a0", min=0, max=9)])
    twice = spark.createDataFrame(pa.table({"id": [1, 1], "a0_lo": [1, 2], "a0_hi": [3, 4]}))
    with pytest.raises(RejectedRowError, match="duplicate id"):
        cover(twice, space)
    wrong = spark.createDataFrame(pa.table({"id": [1], "filter": ["a0 >"]}))
    with pytest.raises(RangecastError, match="a0 >"):
        cover(wrong, space)


def test_no_subscriptions(spark):
    table = pa.table({"id": pa.array([], pa.int64()), "filter": pa.array([], pa.string())})
    assert cover(spark.createDataFrame(table), space_of(1)).collect() == []
