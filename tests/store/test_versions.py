"""Versions of a set, pins and edits: also when the process is killed at any step."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.engine import Engine
from rangecast.errors import FileError, SnapshotError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import String
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.store.edits import Edits
from rangecast.store.versions import REPLAYABLE, Versions
from tests.support.killed import killed_at_each_operation

SPACE = Space([Number("price"), String("name")])


def boxes(count):
    lo = np.zeros((count, 2))
    return Boxes.of(lo, lo + 1, ids=[f"s{i}" for i in range(count)])


def sizes(versions):
    return [versions.load(v)[0].rows for v in versions.all()]


def test_versions_are_numbered_and_hold_what_was_committed(tmp_path):
    versions = Versions(tmp_path / "v")
    with pytest.raises(SnapshotError, match="no version"):
        versions.latest()
    assert [versions.commit(boxes(n), SPACE) for n in (1, 2)] == [1, 2]
    assert versions.latest() == 2
    assert sizes(versions) == [1, 2]
    assert versions.load(2)[1] == SPACE
    assert versions.path(1) == tmp_path / "v" / "000001"
    with pytest.raises(SnapshotError, match=r"no version 3; it has \[1, 2\]"):
        versions.path(3)


def test_a_snapshot_saved_by_an_engine_is_a_version(tmp_path):
    versions = Versions(tmp_path)
    versions.commit(boxes(1), SPACE, edits=["1.csv"])
    engine = Engine(SPACE)
    engine.subscribe_many(boxes(2))
    engine.save(tmp_path / "000002")
    assert versions.pin("a", 0) == 2
    assert sizes(versions) == [1, 2]
    assert versions.edit_files(2) == versions.rejected(2) == []


def test_what_is_there_already_is_not_committed_again(tmp_path):
    versions = Versions(tmp_path)
    assert [versions.commit(boxes(n), SPACE) for n in (1, 1, 2, 1, 1)] == [1, 1, 2, 3, 3]
    other = Space([Number("price", max=9), String("name")])
    assert versions.commit(boxes(1), other) == 4
    assert versions.all() == [1, 2, 3, 4]


def test_a_publisher_that_was_overtaken_is_told(tmp_path):
    versions = Versions(tmp_path)
    assert versions.commit(boxes(1), SPACE, after=0) == 1
    assert versions.commit(boxes(2), SPACE, after=0) is None
    assert sizes(versions) == [1]


def test_a_batch_keeps_its_version(tmp_path):
    versions = Versions(tmp_path)
    versions.commit(boxes(1), SPACE)
    assert versions.pin("a", 0) == 1
    versions.commit(boxes(2), SPACE)
    assert Versions(tmp_path).pin("a", 0) == 1
    assert versions.pin("b", 0) == 2  # another stream
    assert versions.pin("a", 1) == 2
    assert versions.pinned() == {("a", 0): 1, ("b", 0): 2, ("a", 1): 2}


def test_pins_are_let_go_after_some_batches(tmp_path):
    versions = Versions(tmp_path)
    versions.commit(boxes(1), SPACE)
    for batch in range(REPLAYABLE + 2):
        versions.pin("a", batch)
    assert sorted(versions.pinned()) == [("a", b) for b in range(2, REPLAYABLE + 2)]


def test_prune_leaves_the_newest_and_the_pinned(tmp_path):
    versions = Versions(tmp_path)
    for n in range(1, 6):
        versions.commit(boxes(n), SPACE)
        if n == 2:
            versions.pin("a", 0)
    assert versions.prune(keep=2) == [1, 3]
    assert versions.all() == [2, 4, 5]
    versions.forget("a")
    assert versions.prune() == [2, 4]
    assert versions.commit(boxes(6), SPACE) == 6
    with pytest.raises(UsageError, match="keep is 1 or more"):
        versions.prune(keep=0)


def commit_one(folder):
    Versions(folder).commit(boxes(1), SPACE)


def commit_two(folder):
    Versions(folder).commit(boxes(2), SPACE)


@pytest.mark.process
def test_killed_while_publishing_there_is_a_whole_version_or_none(tmp_path):
    seen = set()
    for folder in killed_at_each_operation(tmp_path, commit_one, commit_two):
        versions = Versions(folder)
        seen.add(versions.latest())
        assert sizes(versions) == [1, 2][: versions.latest()]
        versions.commit(boxes(3), SPACE)
        assert sizes(versions) == [*[1, 2][: versions.latest() - 1], 3]
        assert not list((folder / "unseen").iterdir()), "what the crash left is cleared away"
    assert seen == {1, 2}


def pin_one(folder):
    Versions(folder).pin("a", 12)


def test_killed_while_pinning_a_pin_is_there_or_not(tmp_path):
    pinned = set()
    for folder in killed_at_each_operation(tmp_path, commit_one, pin_one):
        versions = Versions(folder)
        before = versions.pinned()
        pinned.add(len(before))
        versions.commit(boxes(2), SPACE)
        assert versions.pin("a", 12) == before.get(("a", 12), 2)
        versions.commit(boxes(3), SPACE)
        assert versions.pin("a", 12) == before.get(("a", 12), 2)
    assert pinned == {0, 1}


def three_versions(folder):
    for n in (1, 2, 3):
        Versions(folder).commit(boxes(n), SPACE)
    pin_one(folder)


def prune_all(folder):
    Versions(folder).prune()


def test_killed_while_pruning_no_version_is_half_there(tmp_path):
    for folder in killed_at_each_operation(tmp_path, three_versions, prune_all):
        versions = Versions(folder)
        assert sizes(versions) == versions.all()
        prune_all(folder)
        assert versions.all() == [3]
        versions.commit(boxes(4), SPACE)
        assert not list((folder / "unseen").iterdir())


def test_a_file_that_didnt_change_doesnt_undo_what_others_committed(tmp_path):
    versions = Versions(tmp_path)
    versions.commit(boxes(1), SPACE)
    versions.commit_file(boxes(1), SPACE)
    assert sizes(versions) == [1]
    versions.commit(boxes(2), SPACE)
    versions.prune()
    versions.commit_file(boxes(1), SPACE)
    assert sizes(versions) == [2]
    versions.commit_file(boxes(3), SPACE)
    assert sizes(versions) == [2, 3]


# ---- edits


def edit_file(folder, name, rows):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def subscribe(one, text, **more):
    return {"id": one, "op": "subscribe", "filter": text, **more}


def test_edits_make_versions(tmp_path):
    versions = Versions(tmp_path / "v")
    edits = Edits(tmp_path / "e", versions, SPACE)
    with pytest.raises(FileError, match="no such folder of edits"):
        edits.apply()
    edit_file(tmp_path / "e", "1.jsonl", [subscribe("b", "price < 5"), subscribe("a", "true")])
    assert edits.apply() == 1
    assert edits.apply() is None
    edit_file(tmp_path / "e", "2.jsonl", [{"id": "b", "op": "replace", "filter": "name = 'x'"}])
    edit_file(tmp_path / "e", "3.jsonl", [subscribe("c", "price > 1", score=3)])
    edit_file(tmp_path / "e", "_4.jsonl", [subscribe("d", "true")])  # not complete yet
    assert edits.apply() == 2
    found, space = versions.load(2)
    assert found.ids.to_pylist() == ["b", "a", "c"]  # a replacement keeps its place
    assert found.scores.tolist() == [0, 0, 3]
    assert space.vocabularies == {"name": ["x"]}
    assert versions.edit_files(2) == ["1.jsonl", "2.jsonl", "3.jsonl"]
    assert versions.rejected(2) == []


def test_a_replacement_keeps_its_score_unless_the_edit_has_one(tmp_path):
    versions = Versions(tmp_path / "v")
    edits = Edits(tmp_path / "e", versions, SPACE)
    added = [subscribe(one, "price < 5", score=7) for one in "abc"]
    changed = [
        {"id": "a", "op": "replace", "filter": "price < 6"},
        {"id": "b", "op": "replace", "filter": "price < 6", "score": 0},
        {"id": "c", "op": "replace", "filter": "price < 6", "score": 9},
    ]
    edit_file(tmp_path / "e", "1.jsonl", [*added, *changed])
    assert edits.apply() == 1
    assert versions.load(1)[0].scores.tolist() == [7, 0, 9]


def test_a_version_committed_by_hand_keeps_the_count_of_edits(tmp_path):
    versions = Versions(tmp_path / "v")
    edits = Edits(tmp_path / "e", versions, SPACE)
    edit_file(tmp_path / "e", "1.jsonl", [subscribe("a", "true")])
    edits.apply()
    versions.commit(boxes(5), SPACE)
    assert edits.apply() is None
    assert sizes(versions) == [1, 5]


def test_an_edit_that_cant_be_applied_is_kept_with_its_reason_and_the_others_go_on(tmp_path):
    versions = Versions(tmp_path / "v")
    versions.commit(boxes(2), SPACE)
    wrong = [
        ({"id": "s0", "op": "subscribe", "filter": "true"}, "'s0' already exists"),
        ({"id": "s9", "op": "replace", "filter": "true"}, "no subscription 's9'"),
        ({"id": "s9", "op": "unsubscribe"}, "no subscription 's9'"),
        (
            {"id": "s9", "op": "drop"},
            "op must be one of subscribe, replace, unsubscribe, upsert, remove; given: 'drop'",
        ),
        ({"id": "s9", "op": "subscribe"}, "subscribe requires a filter"),
        ({"id": "s9", "op": "subscribe", "filter": "prize < 5"}, "prize"),
        ({"id": "s9", "op": "subscribe", "filter": "true", "score": "much"}, "much"),
        ({"id": None, "op": "unsubscribe"}, "an id is a text"),
    ]
    good = [{"id": "s1", "op": "unsubscribe"}, subscribe("s5", "price = 3")]
    edit_file(tmp_path / "e", "1.jsonl", [*(edit for edit, _ in wrong), *good])
    assert Edits(tmp_path / "e", versions, SPACE).apply() == 2
    rejected = versions.rejected(2)
    assert [one["row"] for one in rejected] == list(range(len(wrong)))
    for one, (_, reason) in zip(rejected, wrong, strict=True):
        assert reason in one["reason"]
        assert one["file"] == "1.jsonl"
    assert versions.load(2)[0].ids.to_pylist() == ["s0", "s5"]


def test_a_whole_number_in_a_text_file_is_an_id_like_those_of_the_set(tmp_path):
    versions = Versions(tmp_path / "v")
    one = np.zeros((1, 2))
    versions.commit(Boxes.of(one, one, ids=[7]), SPACE)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "1.csv").write_text(
        "id,op,filter\n8,subscribe,true\nnine,subscribe,true\n7,unsubscribe,\n"
    )
    Edits(tmp_path / "e", versions, SPACE).apply()
    assert versions.load(2)[0].ids.to_pylist() == [8]
    assert [one["id"] for one in versions.rejected(2)] == ["nine"]


def test_a_file_with_other_columns_stops_before_anything_is_committed(tmp_path):
    versions = Versions(tmp_path / "v")
    edits = Edits(tmp_path / "e", versions, SPACE)
    edit_file(tmp_path / "e", "1.jsonl", [subscribe("a", "true", rank=1)])
    with pytest.raises(FileError, match="unknown column 'rank'"):
        edits.apply()
    (tmp_path / "e" / "1.jsonl").unlink()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "e" / "2.parquet")
    with pytest.raises(FileError, match="edits require 'id' and 'op'"):
        edits.apply()
    assert versions.all() == []


def base_and_edits(folder):
    commit_one(folder / "v")
    edit_file(folder / "e", "1.jsonl", [subscribe("a", "true")])


def apply_edits(folder):
    Edits(folder / "e", Versions(folder / "v"), SPACE).apply()


@pytest.mark.process
def test_killed_while_edits_are_applied_none_is_applied_twice(tmp_path):
    for folder in killed_at_each_operation(tmp_path, base_and_edits, apply_edits):
        apply_edits(folder)
        assert sizes(Versions(folder / "v")) == [1, 2]


IDS = st.sampled_from("abcd")
BOUND = st.integers(0, 5)
EDIT = st.tuples(st.sampled_from(["subscribe", "replace", "unsubscribe"]), IDS, BOUND)


def test_an_edit_of_a_large_set_is_a_small_version(tmp_path):
    """Kilobytes, however large the set is; few layers; and a whole version now and then."""
    versions = Versions(tmp_path / "v")
    versions.commit(boxes(20_000), SPACE)
    whole = size_on_disk(tmp_path / "v" / "000001")
    edits = Edits(tmp_path / "e", versions, SPACE)
    for number in range(40):
        rows = [
            subscribe(f"n{number}", f"price <= {number} and name = 'w{number}'"),
            {"id": f"s{number}", "op": "unsubscribe"},
            {"id": f"s{number + 500}", "op": "replace", "filter": f"price = {number}"},
        ]
        edit_file(tmp_path / "e", f"{number:03}.jsonl", rows)
        assert edits.apply() == number + 2
    sizes_of_edits = [size_on_disk(tmp_path / "v" / f"{v:06}") for v in range(2, 42)]
    assert max(sizes_of_edits) < whole / 50
    assert versions.parts(41)[0] == 1
    assert all(len(versions.parts(v)[1]) <= 6 for v in versions.all())
    assert versions.edit_files(41) == [f"{number:03}.jsonl" for number in range(40)]
    for version in (2, 20, 41):
        found, space = versions.load(version)
        ids = found.ids.to_pylist()
        count = version - 1
        assert ids == [f"s{i}" for i in range(count, 20_000)] + [f"n{i}" for i in range(count)]
        assert space.vocabularies == {"name": [f"w{i}" for i in range(count)]}
        assert found.hi[ids.index("s500"), 0] == 0
        assert found.hi[-1].tolist() == [count - 1, count - 1]
    many = [{"id": f"s{i}", "op": "unsubscribe"} for i in range(1000, 4000)]
    edit_file(tmp_path / "e", "999.jsonl", many)
    assert Edits(tmp_path / "e", versions, SPACE).apply() == 42
    assert versions.parts(42) == (42, [])
    assert versions.load(42)[0].rows == 17_000


def size_on_disk(folder):
    return sum(path.stat().st_size for path in folder.rglob("*"))


def test_what_others_are_made_over_outlives_its_version(tmp_path):
    versions = Versions(tmp_path / "v")
    versions.commit(boxes(5), SPACE)
    edits = Edits(tmp_path / "e", versions, SPACE)
    for number in range(4):
        edit_file(tmp_path / "e", f"{number}.jsonl", [{"id": f"s{number}", "op": "unsubscribe"}])
        edits.apply()
    assert versions.prune(keep=2) == [1, 2, 3]
    assert sizes(versions) == [2, 1]
    assert versions.edit_files(5) == ["0.jsonl", "1.jsonl", "2.jsonl", "3.jsonl"]
    versions.commit(boxes(3), SPACE)
    assert versions.prune() == [4, 5]
    assert not list((tmp_path / "v" / "parts").iterdir())


@pytest.mark.parametrize("few", [1000, 3], ids=["layers", "whole versions in between"])
@given(st.lists(st.lists(EDIT, max_size=6), max_size=4), st.booleans())
def test_any_history_gives_what_a_plain_dict_gives(tmp_path_factory, few, files, at_once):
    folder = tmp_path_factory.mktemp("edits")
    versions = Versions(folder / "v", few=few)
    edits = Edits(folder / "e", versions, SPACE)
    (folder / "e").mkdir()
    wanted: dict[str, int] = {}
    for number, rows in enumerate(files):
        for op, one, bound in rows:
            if (one in wanted) == (op == "subscribe"):
                continue  # rejected
            if op == "unsubscribe":
                del wanted[one]
            else:
                wanted[one] = bound
        lines = [{"id": one, "op": op, "filter": f"price <= {b}"} for op, one, b in rows]
        edit_file(folder / "e", f"{number}.jsonl", lines)
        if not at_once:
            edits.apply()
    edits.apply()
    if files:
        found, _ = versions.load(versions.latest())
        assert dict(zip(found.ids.to_pylist(), found.hi[:, 0], strict=True)) == wanted
        assert found.ids.to_pylist() == list(wanted)
    else:
        assert not Path(folder / "v").exists()
