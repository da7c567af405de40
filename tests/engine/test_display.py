"""Reprs and HTML tables: short, bounded, and safe with ids of any content."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

from rangecast import Category, Engine, Filter, Number, Space, String
from rangecast.cover import CoverSet
from rangecast.merge import ExactSummary, Summary
from rangecast.model.display import brief, few, html_table
from rangecast.notify import Board

HOSTILE = [
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m\n\r\u202e'\"&amp;",
    "x" * 100_000,
]
SPACE = Space([Number("price"), String("<b>name</b>")])
TAGS = {"p", "table", "tr", "th", "td", "code"}
LONGEST, LONGEST_HTML = 1500, 12_000


class Tags(HTMLParser):
    """The tags of a text, and whether they are closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        assert not [name for name, _ in attrs if name != "colspan"]
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(shown):
    line = repr(shown)
    assert len(line) <= LONGEST
    assert line.isprintable(), line
    html = shown._repr_html_()
    assert len(html) <= LONGEST_HTML
    tags = Tags(html)
    assert not tags.open
    assert tags.seen <= TAGS
    return line, html


def rows(count):
    ids = [*HOSTILE, *(f"s{n}" for n in range(count))]
    return [{"id": one, "filter": f"price < {10 + n}"} for n, one in enumerate(ids)]


@pytest.mark.parametrize("kind", [Engine, CoverSet, Summary, ExactSummary])
def test_sets_of_subscriptions(kind):
    made = kind(SPACE)
    forwards = made.subscribe_many(rows(50))
    line, html = check(made)
    assert line == f"<{kind.__name__}: 54 subscriptions over {SPACE!r}>"
    assert "&lt;script&gt;" in html
    assert html.count("<tr>") == 1 + 10 + 1
    assert "... 44 more" in html
    check(made[HOSTILE[0]])
    if kind is not Engine:
        line, _ = check(forwards)
        assert "of 54 commands" in line
        assert len(repr(forwards[0])) <= LONGEST


def test_answers():
    engine = Engine(SPACE)
    engine.subscribe_many(rows(2000))
    events = [{"id": one, "price": 1.0} for one in HOSTILE] * 10
    line, html = check(engine.match_many(events))
    assert line.startswith("<Matches: 80,160 matches of 40 events: '<script>alert(1)</script>': [")
    assert "... 2,004 in all" in line
    assert "<th>event</th>" in html
    check(engine.rank_many(events, 50))
    check(engine.why({"price": 1.0}, HOSTILE[1]))
    assert repr(engine.match_many([])) == "<Matches: 0 matches of 0 events>"


@pytest.mark.parametrize("space", [None, Space([Number("position")])])
def test_boards(space):
    objects = [
        {"id": one, "position": float(n), "value": float(n)} for n, one in enumerate(HOSTILE * 1)
    ]
    interests = [{"id": one, "position_lo": -1.0, "position_hi": 99.0} for one in HOSTILE]
    board = Board(30, space=space, objects=objects, interests=interests)
    check(board)
    for n in range(20):
        messages = board.add(f"o{n}", {"position": 1.0} if space else 1.0, -1.0)
    line, _ = check(messages)
    assert line == "<Messages: 1 message: 'o19' -1.0>"
    line, html = check(board[HOSTILE[0]])
    assert line.endswith("'o0' -1.0, 'o1' -1.0, 'o2' -1.0, ... 24 in all>")
    assert "<td>1</td><td>o0</td><td>-1.0</td>" in html
    assert len(repr(board.objects)) <= LONGEST
    assert repr(board.remove("o19")).startswith("<Messages: 1 message: 'o19' gone")


def test_filters_and_spaces():
    words = ", ".join(f"'{'<w>'}{n}'" for n in range(500))
    line, html = check(Filter.parse(f"`<b>name</b>` in ({words})", SPACE))
    assert line.endswith("...)")
    assert "&lt;w&gt;" in html
    check(SPACE)
    wide = Space(
        [Category(f"<c{n}>", ["<i>"] * 1 + [str(m) for m in range(999)]) for n in range(500)]
    )
    line, html = check(wide)
    assert line.endswith("... 500 attributes)")
    assert "... 490 more" in html


def test_parts():
    class Raises:
        def __repr__(self):
            raise RuntimeError

    assert brief(Raises()) == "<Raises>"
    assert few(iter([1, 2]), 2) == "[1, 2]"
    assert few(range(9), 9) == "[0, 1, 2, ... 9 in all]"
    assert html_table("<t>", ("a",), [[np.float64(1)]], 1).startswith("<p>&lt;t&gt;</p>")
