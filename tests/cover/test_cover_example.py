"""The worked example of docs/how-to/cover.md: five subscriptions, four graphs, and what is sent."""

from __future__ import annotations

import pytest

from docs.make_pictures import EXAMPLE, example_graph

EDGES = {
    "all": [(1, 3), (1, 4), (2, 4), (3, 4), (1, 5), (2, 5), (3, 5), (4, 5)],
    1: [(1, 3), (1, 4), (1, 5)],
    2: [(1, 3), (1, 4), (2, 4), (1, 5), (2, 5)],
    "poset": [(1, 3), (2, 4), (3, 4), (4, 5)],
}
QUESTIONS = {"all": 0, 1: 3, 2: 1, "poset": 0}
"""cov() calls that the removal of 1 causes."""


@pytest.mark.parametrize("k", EDGES)
def test_the_worked_example(k):
    graph = example_graph(k)
    assert graph.edges() == EDGES[k]
    assert graph.uncovered() == graph.advertised() == [1, 2]
    assert graph.work.subscribe.calls == len(EXAMPLE)
    assert graph.unsubscribe(1) == ([3], [1])
    assert graph.work.unsubscribe.calls == QUESTIONS[k]
    assert graph.uncovered() == [2, 3]
    assert graph.unsubscribe(4) == ([], [])
    assert graph.unsubscribe(3) == ([], [3])
    assert graph.covered_by(5) == [2]
    assert graph.unsubscribe(2) == ([5], [2])
    assert graph.unsubscribe(5) == ([], [5])
    assert graph.uncovered() == []
