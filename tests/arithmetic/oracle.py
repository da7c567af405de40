"""Arithmetic conditions in plain Python: what the kernels are compared with.

Conditions are drawn as trees and evaluated by Python's own floats; nothing here reads a filter.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Mapping
from typing import Any

Tree = tuple[Any, ...]
Event = Mapping[str, float]
_BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}


class UndefinedError(Exception):
    """A value is missing, or a result isn't a finite number."""


def value(tree: Tree, event: Event) -> float:
    """The value of an expression for an event."""
    kind, *rest = tree
    if kind == "number":
        return rest[0]
    if kind == "name":
        if event.get(rest[0]) is None:
            raise UndefinedError
        return float(event[rest[0]])
    values = [value(one, event) for one in rest]
    try:
        if kind == "neg":
            found = -values[0]
        elif kind in _BINARY:
            found = _BINARY[kind](*values)
        else:
            found = {"abs": abs, "min": min, "max": max}[kind](*values)
    except (ZeroDivisionError, OverflowError):
        raise UndefinedError from None
    if not math.isfinite(found):
        raise UndefinedError
    return found


def holds(comparison: Tree, event: Event, negated: bool = False) -> bool:
    """Return whether a comparison, or its negation, holds for an event."""
    sign, left, right = comparison
    try:
        return _SIGNS[_OPPOSITE[sign] if negated else sign](value(left, event), value(right, event))
    except UndefinedError:
        return False


def text(tree: Tree, r: random.Random) -> str:
    """A text of an expression, sometimes with parentheses that aren't needed."""
    kind, *rest = tree
    if kind == "number":
        return f"({rest[0]!r})" if r.random() < 0.1 else repr(rest[0])
    if kind == "name":
        return f"`{rest[0]}`" if r.random() < 0.1 else rest[0]
    parts = [text(one, r) for one in rest]
    if kind == "neg":
        return f"-({parts[0]})"
    if kind in _BINARY:
        space = r.choice(["", " "]) if kind != "-" else " "
        return f"({parts[0]}{space}{kind}{space}{parts[1]})"
    return f"{r.choice([kind, kind.upper()])}({', '.join(parts)})"


class Draw:
    """Random conditions and events whose values often coincide, vanish or overflow."""

    def __init__(self, seed: int, names: tuple[str, ...]):
        self.random = random.Random(seed)
        self.names = names

    def number(self) -> float:
        r = self.random
        kind = r.random()
        if kind < 0.45:
            return float(r.randint(-4, 4))
        if kind < 0.7:
            return r.choice([0.1, 0.2, 0.3, 0.5, 1.5]) * r.randint(-3, 3)
        if kind < 0.85:
            return r.uniform(-5, 5)
        odd = [1e308, -1e308, 5e-324, 1e-300, 1e160, -1e-160, 2.0**53, 2.0**53 + 2, -0.0]
        return r.choice(odd)

    def tree(self, depth: int = 3) -> Tree:
        r = self.random
        if depth == 0 or r.random() < 0.3:
            if r.random() < 0.3:
                return "number", self.number()
            return "name", r.choice(self.names)
        kind = r.choice(["+", "-", "*", "/", "+", "-", "neg", "abs", "min", "max"])
        count = 1 if kind in ("neg", "abs") else r.choice([2, 3]) if kind in ("min", "max") else 2
        return kind, *(self.tree(depth - 1) for _ in range(count))

    def comparison(self) -> Tree:
        r = self.random
        while True:
            left, right = self.tree(), self.tree(r.choice([0, 1, 2]))
            if has_name(left) or has_name(right):
                return r.choice([*_SIGNS, "<", "<="]), left, right

    def comparison_text(self, comparison: Tree) -> str:
        sign, left, right = comparison
        return f"{text(left, self.random)} {sign} {text(right, self.random)}"


def has_name(tree: Tree) -> bool:
    """Return whether an expression mentions an attribute."""
    return tree[0] == "name" or any(has_name(one) for one in tree[1:] if isinstance(one, tuple))


def is_simple(comparison: Tree) -> bool:
    """Return whether it is a comparison of an attribute with a number, which isn't arithmetic."""
    kinds = {comparison[1][0], comparison[2][0]}
    return kinds == {"name", "number"}
