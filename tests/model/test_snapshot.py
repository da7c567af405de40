import json
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given

from rangecast.errors import SnapshotError, UsageError
from rangecast.match.scan import Scan
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import String
from rangecast.model.boxes import Boxes
from rangecast.model.snapshot import load_arrays, load_boxes, save_arrays, save_boxes
from rangecast.model.space import Space
from tests.support import strategies
from tests.support.conformance import as_sets
from tests.support.examples import examples


def some_boxes():
    lo = np.array([[0.0, 1.0], [2.0, -np.inf], [0.0, 0.0]])
    return Boxes.of(
        lo, lo + 5, owner=[0, 1, 1], ids=["é", "plain"], scores=[1, 2], weights=np.ones((2, 2))
    )


def some_space():
    space = Space([Number("x"), String("s")])
    space["s"].equal("AAPL")
    return space


@given(strategies.boxes_and_points())
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_boxes_come_back_as_they_were(tmp_path_factory, case):
    boxes, points = case
    space = Space([Number(f"a{j}") for j in range(boxes.dimensions)])
    path = tmp_path_factory.mktemp("snapshots") / "one"
    save_boxes(path, boxes, space)
    again, same = load_boxes(path)
    assert same == space
    assert again.ids.equals(boxes.ids)
    for name in ("lo", "hi", "owner", "scores", "weights"):
        np.testing.assert_array_equal(getattr(again, name), getattr(boxes, name))
    assert as_sets(Scan(again).match(points)) == as_sets(Scan(boxes).match(points))


def test_arrays_are_mapped_read_only_and_the_vocabulary_is_kept(tmp_path):
    save_boxes(tmp_path / "s", some_boxes(), some_space())
    boxes, space = load_boxes(tmp_path / "s")
    assert space["s"].vocabulary == ["AAPL"]
    assert not boxes.lo.flags.writeable
    assert not boxes.lo.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        boxes.lo[0, 0] = 1
    assert not list(tmp_path.glob(".*"))


def test_a_pickle_stays_read_only():
    boxes = pickle.loads(pickle.dumps(some_boxes()))
    assert not boxes.lo.flags.writeable
    assert boxes.ids.to_pylist() == ["é", "plain"]


def test_a_snapshot_that_is_there_is_not_overwritten(tmp_path):
    save_boxes(tmp_path / "s", some_boxes(), some_space())
    with pytest.raises(SnapshotError, match="already exists"):
        save_boxes(tmp_path / "s", some_boxes(), some_space())


def test_a_snapshot_and_nothing_else_is_replaced_if_asked_for(tmp_path):
    path = tmp_path / "s"
    save_boxes(path, some_boxes(), some_space())
    mapped, _ = load_boxes(path)
    other = some_boxes().take([1])
    save_boxes(path, other, some_space(), overwrite=True)
    assert load_boxes(path)[0].ids.to_pylist() == ["plain"]
    assert mapped.ids.to_pylist() == ["é", "plain"]  # whoever reads the old one goes on
    save_boxes(tmp_path / "new", other, some_space(), overwrite=True)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letters").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for name in ("mine", "file"):
        with pytest.raises(SnapshotError, match="isn't a readable snapshot"):
            save_boxes(tmp_path / name, other, some_space(), overwrite=True)
    assert (mine / "letters").read_text() == "dear"


def test_every_flipped_or_missing_byte_is_noticed(tmp_path):
    path = tmp_path / "s"
    save_boxes(path, some_boxes(), some_space())
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 7)):
            flipped = bytearray(whole)
            flipped[place] ^= 4
            file.write_bytes(flipped)
            with pytest.raises(SnapshotError, match=str(path)):
                load_boxes(path)
        file.write_bytes(whole[:-1])
        with pytest.raises(SnapshotError, match=str(path)):
            load_boxes(path)
        file.unlink()
        with pytest.raises(SnapshotError, match=str(path)):
            load_boxes(path)
        file.write_bytes(whole)
    load_boxes(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "format version 99"),
        ({"format": "something else"}, "is not a rangecast snapshot"),
        ({"kind": "tree"}, "damaged"),
    ],
)
def test_other_formats_are_rejected_by_name(tmp_path, change, message):
    path = tmp_path / "s"
    save_boxes(path, some_boxes(), some_space())
    manifest = json.loads((path / "manifest.json").read_text()) | change
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SnapshotError, match=message):
        load_boxes(path)


def test_a_snapshot_of_another_kind_is_rejected(tmp_path):
    save_arrays(tmp_path / "s", "tree", {"nodes": np.zeros(3)}, {"d": 2})
    arrays, meta = load_arrays(tmp_path / "s", "tree")
    assert (arrays["nodes"].tolist(), meta) == ([0.0, 0.0, 0.0], {"d": 2})
    with pytest.raises(SnapshotError, match="snapshot of 'tree', expected 'boxes'"):
        load_boxes(tmp_path / "s")


def test_nothing_is_left_when_writing_fails(tmp_path):
    with pytest.raises(SnapshotError, match="can't be written"):
        save_arrays(tmp_path / "file" / "s", "tree", {"a/b": np.zeros(3)}, {})
    assert not list(tmp_path.glob("file/*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lo": [[1.0]], "hi": [[0.0]]}, "box 0 is empty"),
        ({"lo": [[np.nan]], "hi": [[0.0]]}, "contains NaN"),
        ({"lo": [1.0], "hi": [1.0]}, "shape"),
        ({"lo": [[0.0]], "hi": [[0.0]], "owner": [1]}, "ascending from 0"),
        ({"lo": [[0.0]], "hi": [[0.0]], "ids": ["a", "b"]}, "1 subscriptions, 2 ids"),
        (
            {"lo": [[0.0]] * 2, "hi": [[0.0]] * 2, "ids": ["a", 1]},
            "all 64-bit integers or all strings",
        ),
        ({"lo": [[0.0]], "hi": [[0.0]], "scores": [np.nan]}, "finite"),
        ({"lo": [[0.0]], "hi": [[0.0]], "weights": [[-1.0]]}, "not negative"),
        ({"lo": [[0.0]], "hi": [[0.0]], "weights": [1.0]}, "shape"),
    ],
)
def test_boxes_check_what_they_are_given(arguments, message):
    with pytest.raises(UsageError, match=message):
        Boxes.of(**arguments)


def test_boxes_leave_the_callers_arrays_alone():
    lo, hi = np.zeros((2, 1)), np.ones((2, 1))
    boxes = Boxes.of(lo, hi)
    lo[0] = 5
    assert boxes.lo[0] == 0
    assert lo.flags.writeable


@given(strategies.boxes())
def test_take_gives_those_rows_in_that_order(boxes):
    rows = np.arange(boxes.rows)[::-2]
    some = boxes.take(rows)
    assert some.ids.to_pylist() == [boxes.ids[int(row)].as_py() for row in rows]
    for place, row in enumerate(rows.tolist()):
        np.testing.assert_array_equal(some.lo[some.owner == place], boxes.lo[boxes.owner == row])


def test_ids_of_either_kind_of_text_are_read_back(tmp_path):
    for kind in (pa.string(), pa.large_string()):
        ids = pa.array(["x", "a", "ü", "b"], kind)[1:]
        boxes = replace(Boxes.of(np.zeros((3, 1)), np.ones((3, 1))), ids=ids)
        save_boxes(tmp_path / str(kind), boxes, Space([Number("price")]))
        assert load_boxes(tmp_path / str(kind))[0].ids.to_pylist() == ["a", "ü", "b"]
