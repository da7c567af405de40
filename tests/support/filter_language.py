"""A tiny interpreter of filters over plain events, which knows nothing of boxes; and trees for it.

A tree is a tuple. Comparing a missing value is unknown, and so is the negation: three values.

    ("order", name, ((sign, literal), ...))     all of them hold
    ("equal", name, (literal, ...))             one of them holds
    ("null", name)    ("true",)    ("not", tree)    ("and", trees)    ("or", trees)

A literal is a pair: its text in a filter, and the value that an event would carry.
"""

from __future__ import annotations

import operator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from rangecast.model.attributes.base import Boolean, Integer, Number
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.space import Space

LEAVES = {"EU": {"de", "fr", "it"}, "US": {"ny", "ca"}, "world": {"de", "fr", "it", "ny", "ca"}}


def space() -> Space:
    """A new space with every kind of attribute; its vocabulary is its own."""
    return Space(
        [
            Number("x"),
            Number("percent", min=0, max=10),
            Integer("n"),
            Integer("small", min=-2, max=3),
            Timestamp("at"),
            Boolean("ok"),
            Category("c", ["red", "it's", "blue", 'a "b"']),
            String("s"),
            Hierarchy("h", {"world": {"EU": ["de", "fr", "it"], "US": ["ny", "ca"]}}),
            Number("my `x"),
        ]
    )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NUMBERS = ["0", "-0.0", "1", "2", "2.50", "3", "-1e0", "+7", "0.1", ".5", "5e-324", "1e300"]
WHOLE = ["0", "1", "2", "3", "4", "2.5", "-1", "-2.0", "1e1", "9007199254740993", "1e30"]
MOMENTS = ["2026-01-01", "2026-01-01T00:00:00.000001", "2026-01-02T03:04:05", "1969-12-31"]
TEXTS = ["a", "b", "it's", 'say "x"', "", "ü\n`"]
VALUES: dict[str, list[tuple[str, Any]]] = {
    "x": [(t, float(t)) for t in NUMBERS],
    "percent": [(t, float(t)) for t in NUMBERS],
    "my `x": [(t, float(t)) for t in NUMBERS],
    "n": [(t, Decimal(t)) for t in WHOLE],
    "small": [(t, Decimal(t)) for t in WHOLE],
    "at": [(f"'{t}'", _moment(t)) for t in MOMENTS],
    "ok": [("true", True), ("FALSE", False), ("1", True)],
    "c": [("'red'", "red"), ("'it''s'", "it's"), ('"blue"', "blue"), ("'a \"b\"'", 'a "b"')],
    "s": [("'" + t.replace("'", "''") + "'", t) for t in TEXTS],
    "h": [(f'"{t}"', t) for t in ("de", "fr", "it", "ny", "ca", "EU", "US", "world")],
}
ORDERED = ("x", "percent", "n", "small", "at", "my `x")
EVENT_VALUES: dict[str, list[Any]] = {
    "x": [None, -1.0, 0.0, 5e-324, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 1e300, 1.7e308],
    "percent": [None, 0.0, 5e-324, 0.1, 1.0, 2.5, 3.0, 10.0],
    "n": [None, -3, -2, -1, 0, 1, 2, 3, 4, 10, 2**53, 2**53 + 2],
    "small": [None, -2, -1, 0, 1, 2, 3],
    "at": [None, *(_moment(t) for t in MOMENTS), _moment("2026-01-01T12:00:00")],
    "ok": [None, True, False],
    "c": [None, "red", "it's", "blue", 'a "b"'],
    "s": [None, *TEXTS, "never mentioned"],
    "h": [None, "de", "fr", "it", "ny", "ca"],
    "my `x": [None, 0.0, 1.0, 2.5, 7.0],
}
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Tree = tuple[Any, ...]


def holds(tree: Tree, event: dict[str, Any]) -> bool | None:
    """Return whether an event fulfils a tree; `None` is unknown."""
    form = tree[0]
    if form == "true":
        return True
    if form == "not":
        inner = holds(tree[1], event)
        return None if inner is None else not inner
    if form in ("and", "or"):
        results = [holds(part, event) for part in tree[1]]
        decisive = form == "or"
        if decisive in results:
            return decisive
        return None if None in results else not decisive
    value = event[tree[1]]
    if form == "null":
        return value is None
    if value is None:
        return None
    if form == "order":
        return all(SIGNS[sign](value, literal[1]) for sign, literal in tree[2])
    if tree[1] == "h":
        return any(value == text or value in LEAVES.get(text, ()) for _, text in tree[2])
    return any(value == literal[1] for literal in tree[2])


@st.composite
def conditions(draw: st.DrawFn, names: tuple[str, ...] = tuple(VALUES)) -> Tree:
    name = draw(st.sampled_from(names))
    forms = ["equal", "equal", "equal", "null", "true"]
    form = draw(st.sampled_from(forms + ["order"] * 4 if name in ORDERED else forms))
    if form == "true":
        return (form,)
    if form == "null":
        return form, name
    literals = st.sampled_from(VALUES[name])
    if form == "equal":
        return form, name, tuple(draw(st.lists(literals, min_size=1, max_size=4)))
    if draw(st.booleans()):
        return form, name, ((draw(st.sampled_from(list(SIGNS))), draw(literals)),)
    low, high = draw(st.sampled_from([">", ">="])), draw(st.sampled_from(["<", "<="]))
    return form, name, ((low, draw(literals)), (high, draw(literals)))


@st.composite
def trees(draw: st.DrawFn, deepest: int = 3) -> Tree:
    """Trees over a few attributes only, so that the parts have something to do with each other."""
    some = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3, unique=True)
    names = tuple(draw(some))

    def grow(depth: int) -> Tree:
        form = draw(st.sampled_from(["condition", "not", "and", "or"])) if depth else "condition"
        if form == "condition":
            return draw(conditions(names))
        if form == "not":
            return form, grow(depth - 1)
        return form, tuple(grow(depth - 1) for _ in range(draw(st.integers(2, 3))))

    return grow(deepest)


@st.composite
def texts(draw: st.DrawFn, tree: Tree) -> str:
    """One of the many ways to write a tree."""

    def word(keyword: str) -> str:
        return draw(st.sampled_from([keyword, keyword.upper(), keyword.title()]))

    def name(of: str) -> str:
        return "`my ``x`" if of == "my `x" else draw(st.sampled_from([of, f"`{of}`"]))

    def gap() -> str:
        return draw(st.sampled_from([" ", " ", "\n", "\t ", " -- or ( '\n", " # and `\n "]))

    def order(of: str, bounds: Tree) -> str:
        if len(bounds) == 1:
            ((sign, (literal, _)),) = bounds
            if draw(st.booleans()):
                return f"{literal}{MIRRORED[sign]}{name(of)}"
            return f"{name(of)} {sign} {literal}"
        (low, (first, _)), (high, (second, _)) = bounds
        if (low, high) == (">=", "<=") and draw(st.booleans()):
            return f"{name(of)} {word('between')} {first}{gap()}{word('and')} {second}"
        if draw(st.booleans()):
            return f"{second} {MIRRORED[high]} {name(of)} {low} {first}"
        return f"{first} {MIRRORED[low]} {name(of)} {high} {second}"

    def equal(of: str, literals: Tree) -> str:
        listed = [text for text, _ in literals]
        if len(listed) > 1 or draw(st.booleans()):
            return f"{name(of)} {word('in')} ({', '.join(listed)})"
        sign = draw(st.sampled_from(["=", "=="]))
        return (
            f"{listed[0]}{sign}{name(of)}"
            if draw(st.booleans())
            else f"{name(of)}{sign}{listed[0]}"
        )

    def denied(inner: Tree) -> str:
        """Write `not` in front, or inside where the language has a way to."""
        if draw(st.booleans()):
            if inner[0] == "null":
                return f"{name(inner[1])} {word('is')} {word('not')} {word('null')}"
            if inner[0] == "equal" and len(inner[2]) == 1:
                return f"{name(inner[1])} {draw(st.sampled_from(['!=', '<>']))} {inner[2][0][0]}"
            if inner[0] == "equal":
                listed = ", ".join(text for text, _ in inner[2])
                return f"{name(inner[1])} {word('not')} {word('in')} ({listed})"
            if inner[0] == "order" and [sign for sign, _ in inner[2]] == [">=", "<="]:
                first, second = inner[2][0][1][0], inner[2][1][1][0]
                return f"{name(inner[1])} {word('not')} between {first} and {second}"
            if inner[0] == "true":
                return word("false")
        return f"{word('not')} {write(inner, 3)}"

    def write(one: Tree, level: int) -> str:
        """Levels: 1 within `or`, 2 within `and`, 3 behind `not`."""
        form = one[0]
        if form in ("and", "or"):
            own = 1 if form == "or" else 2
            text = f"{gap()}{word(form)}{gap()}".join(write(part, own + 1) for part in one[1])
            return f"({text})" if own < level or draw(st.booleans()) else text
        if form == "not":
            return denied(one[1])
        text = {
            "true": lambda: word("true"),
            "null": lambda: f"{name(one[1])} {word('is')} {word('null')}",
            "order": lambda: order(one[1], one[2]),
            "equal": lambda: equal(one[1], one[2]),
        }[form]()
        return f"({text})" if draw(st.integers(0, 5)) == 0 else text

    return gap() + write(tree, 1) + gap()


def events() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({n: st.sampled_from(v) for n, v in EVENT_VALUES.items()})
