"""Options of an index, given by text: `vcr:side=16x8,overlapped`."""

import re

import numpy as np
import pytest

from rangecast import Engine, Number, Space
from rangecast.cli.shared.options import MATCH_OPTIONS, RANK_OPTIONS
from rangecast.cover import CoverSet
from rangecast.errors import UsageError
from rangecast.match import choose as match
from rangecast.match.answerer import MatchAnswerer
from rangecast.model.boxes import Boxes
from rangecast.rank import choose as rank
from tests import ROOT

RNG = np.random.default_rng(5)
LO = RNG.integers(0, 60, (3000, 2)).astype(float)
BOXES = Boxes.of(LO, LO + RNG.integers(1, 20, LO.shape))
POINTS = RNG.integers(0, 80, (200, 2)).astype(float)
EVENTS = {"x": POINTS[:, 0], "y": POINTS[:, 1]}
SPACE = Space([Number("x"), Number("y")])


def names_of(verb):
    return {f"{index}:{option}" for index, options in verb.OPTIONS.items() for option in options}


def test_options_reach_the_structure():
    plain = match.build(BOXES, "vcr")
    asked = match.build(BOXES, "vcr:side=4x2,overlapped,hash,cells=30")
    assert asked.sides == (4, 2)
    assert asked.entries < match.build(BOXES, "vcr:side=4x2,hash").entries * 2
    assert asked.slots < plain.slots
    assert match.build(BOXES, "vcr:side=8").sides == (8, 8)
    assert match.build(BOXES, "vcr:hash=no,overlapped=no").slots == plain.slots
    overlapped = match.build(BOXES, "vcr:side=8,overlapped").entries
    assert overlapped < match.build(BOXES, "vcr:side=8").entries
    assert match.build(BOXES, "cells:memory=3MB").memory <= 3_000_000
    assert {bits for _, bits in match.build(BOXES, "hilbert:bits=3").groups} == {3}
    coarse, fine = (match.build(BOXES, f"hilbert:ranges={n}").ranges for n in (2, 32))
    assert coarse < fine
    few, many = (rank.build(BOXES, f"rtree:branching={n}").best(POINTS, 3) for n in (2, 100))
    assert sum(few.work.opened) > sum(many.work.opened)


def test_the_plan_says_what_was_asked_for():
    answerer = MatchAnswerer.of(BOXES, "vcr:side=4")
    assert answerer.choice == ("vcr:side=4", "it was requested")
    assert answerer.index.sides == (4, 4)


@pytest.mark.parametrize("text", sorted(names_of(match)))
def test_a_live_set_takes_every_option_of_matching(text):
    value = {"side": "=4", "cells": "=20", "bits": "=4", "ranges": "=3", "memory": "=1GB"}
    index = text + value.get(text.partition(":")[2], "")
    engine, oracle = Engine(SPACE, index=index), Engine(SPACE, index="scan")
    for live in (engine, oracle):
        live.subscribe_many(BOXES)
        live.unsubscribe_many(range(0, 3000, 7))
    assert engine.index == index
    assert list(engine.match_many(EVENTS)) == list(oracle.match_many(EVENTS))


def test_a_live_set_takes_options_of_ranking():
    engine, oracle = (Engine(SPACE, rank_index=index) for index in ("ir:branching=3", "scan"))
    for live in (engine, oracle):
        live.subscribe_many(BOXES)
    assert engine.rank_many(EVENTS, 5).table() == oracle.rank_many(EVENTS, 5).table()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vrc", "no index 'vrc': did you mean 'vcr'? There is: auto, scan, vcr"),
        ("vrc:side=4", "no index 'vrc': did you mean 'vcr'?"),
        ("slabs:side=4", "index 'slabs' takes no options; given: 'slabs:side=4'"),
        ("auto:side=4", "index 'auto' takes no options"),
        ("vcr:", "index 'vcr' has no option ''; known: 'side', 'overlapped', 'hash', 'cells'"),
        ("vcr:sides=4", "has no option 'sides'; did you mean 'side'? (given: 'vcr:sides=4')"),
        ("vcr:hash,", "index 'vcr' has no option ''"),
        ("vcr:side=4,side=8", "option 'side' of index 'vcr' is given twice"),
        ("vcr:side", "option 'side' of index 'vcr' takes one or two powers of two up to 256"),
        ("vcr:side", "such as 16 or 16x8; given: no value"),
        ("vcr:side=", "given: ''"),
        ("vcr:side=3", "given: '3'"),
        ("vcr:side=4x", "given: '4x'"),
        ("vcr:side=4x4x4", "given: '4x4x4'"),
        ("vcr:side=-4", "given: '-4'"),
        ("vcr:side=512", "given: '512'"),
        ("vcr:hash=true", "option 'hash' of index 'vcr' takes yes or no; given: 'true'"),
        ("vcr:cells=1", "option 'cells' of index 'vcr' takes a whole number, 2 to 32768"),
        ("vcr:cells=1e3", "given: '1e3'"),
        ("hilbert:bits=17", "takes a whole number, 1 to 16; given: '17'"),
        ("cells:memory=2TB", "takes a size such as 500MB or 2GB; given: '2TB'"),
        (3, "an index name must be a string such as 'auto'; given: 3"),
        (None, "given: None"),
    ],
)
def test_other_options_are_rejected_before_anything_is_built(text, message):
    for attempt in (
        lambda: match.check_index(text),
        lambda: match.build(BOXES, text),
        lambda: Engine(SPACE, index=text),
    ):
        with pytest.raises(UsageError) as caught:
            attempt()
        assert message in str(caught.value)


def test_ranking_and_covering_reject_them_too():
    with pytest.raises(UsageError, match="no index 'vcr' for ranking"):
        Engine(SPACE, rank_index="vcr:side=4")
    with pytest.raises(UsageError, match=r"'branching' of index 'sopt' takes .* 2 or more; given"):
        Engine(SPACE, rank_index="sopt:branching=1")
    with pytest.raises(UsageError, match="index 'kdtree' has no option 'side'; known: 'overflow'"):
        CoverSet(SPACE, index="kdtree:side=4")
    with pytest.raises(UsageError, match="no index 'kdtre' for covering: did you mean 'kdtree'"):
        CoverSet(SPACE, index="kdtre")


def test_lists_for_too_many_vcrs_are_rejected():
    boxes = Boxes.of(RNG.random((40_000, 2)), 1 + RNG.random((40_000, 2)))
    with pytest.raises(UsageError, match="hash them, or take fewer cells"):
        match.build(boxes, "vcr:hash=no,cells=30000,side=4")


@pytest.mark.parametrize(("shown", "verb"), [(MATCH_OPTIONS, match), (RANK_OPTIONS, rank)])
def test_help_shows_every_option_by_an_example_that_works(shown, verb):
    _, _, examples = shown.rstrip(".").partition("colon: ")
    found = set()
    for text in examples.replace(", ", "; ").split("; "):
        verb.check_index(text)
        name, _, options = text.partition(":")
        found |= {f"{name}:{option.partition('=')[0]}" for option in options.split(",")}
    assert found == names_of(verb)


def test_the_docs_list_every_option():
    text = (ROOT / "docs" / "how-to" / "performance.md").read_text()
    listed = set(re.findall(r"^\| `(\w+:\w+)`(?: in ranking)? \|", text, re.MULTILINE))
    assert listed == names_of(match) | names_of(rank)
