import numpy as np
import pytest
from hypothesis import given

from rangecast.match.scan import Scan
from tests.support import adversarial, strategies
from tests.support.conformance import MATCHERS, as_sets, by_hand, check_matcher

CASES = adversarial.cases()
pytestmark = pytest.mark.conformance


@given(strategies.boxes_and_points())
def test_the_oracle_says_what_the_meaning_says(case):
    boxes, points = case
    assert as_sets(Scan(boxes).match(points)) == by_hand(boxes, points)


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_on_adversarial_cases(name):
    boxes, points = CASES[name]
    assert as_sets(Scan(boxes).match(points)) == by_hand(boxes, points)


@pytest.mark.parametrize("matcher", MATCHERS)
@given(case=strategies.boxes_and_points())
def test_every_structure_on_random_cases(matcher, case):
    check_matcher(MATCHERS[matcher], *case)


@pytest.mark.parametrize("matcher", MATCHERS)
@pytest.mark.parametrize("name", CASES)
def test_every_structure_on_adversarial_cases(matcher, name):
    check_matcher(MATCHERS[matcher], *CASES[name])


def test_the_strategies_make_what_they_promise():
    """The cases that matter do turn up: shared edges, points, free, null, several boxes."""
    seen = set()

    @given(strategies.boxes_and_points())
    def look(case):
        boxes, points = case
        seen.update(
            name
            for name, there in {
                "several boxes": len(boxes.lo) > boxes.rows,
                "free": (~boxes.mentions).any(),
                "null": (boxes.lo == np.inf).any(),
                "point": (boxes.lo == boxes.hi).any(),
                "missing value": np.isinf(points).any(),
                "event on an edge": np.isin(points, boxes.lo).any(),
                "weights": boxes.weights is not None,
                "no boxes": boxes.rows == 0,
                "text ids": boxes.rows and str(boxes.ids.type) == "large_string",
            }.items()
            if there
        )

    look()
    assert seen == {
        "several boxes",
        "free",
        "null",
        "point",
        "missing value",
        "event on an edge",
        "weights",
        "no boxes",
        "text ids",
    }
