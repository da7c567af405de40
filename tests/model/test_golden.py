"""Files written once and kept: every format of them must go on giving the same answer."""

import numpy as np
import pytest

from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.model.snapshot import load_boxes, save_boxes
from rangecast.model.space import Space
from tests import GOLDEN

FORMATS = ("csv", "jsonl", "parquet", "arrow")
ANSWERS = ((["match"], "matches.csv"), (["rank", "-k", "3", "--relaxed"], "best.csv"))
SPACE = ("--space", str(GOLDEN / "space.toml"), "--quiet")


@pytest.mark.parametrize("events", FORMATS)
@pytest.mark.parametrize("subscriptions", FORMATS)
def test_every_format_gives_the_golden_answers(cli, tmp_path, events, subscriptions):
    files = [str(GOLDEN / f"events.{events}"), str(GOLDEN / f"subscriptions.{subscriptions}")]
    for command, name in ANSWERS:
        cli(*command, *files, *SPACE, "-o", name)
        assert (tmp_path / name).read_text() == (GOLDEN / name).read_text()


def test_the_golden_snapshot_still_opens_and_is_still_written_so(tmp_path):
    boxes, space = load_boxes(GOLDEN / "snapshot")
    assert space == Space.load(GOLDEN / "space.toml")
    fresh = Space.load(GOLDEN / "space.toml")
    read = read_subscriptions(GOLDEN / "subscriptions.csv", fresh)
    assert space.vocabularies == fresh.vocabularies
    np.testing.assert_array_equal(boxes.lo, read.lo)
    np.testing.assert_array_equal(boxes.hi, read.hi)
    assert boxes.ids.equals(read.ids)
    save_boxes(tmp_path / "again", read, fresh)
    for file in (GOLDEN / "snapshot").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
