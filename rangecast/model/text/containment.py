"""Containment of text conditions: whether all texts that one matches, another one matches, too.

    like in like           the outer pattern matches the inner one, `_` and `%` taken as signs
    words in words         a phrase lies in another one; `has all` and `has any` as quantifiers
    lists                  by their values, which are compared with any condition
    cidr in cidr           by their bits
    in `ignore case`       also conditions that don't ignore it, and words
    negations              exchanged

Any other pair counts as not contained, and so do lists with too many pairs of values.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from rangecast.model.filters.grammar import Condition, TextTerm, read
from rangecast.model.text.conditions import (
    ANY_CHARACTER,
    ANY_RUN,
    Pattern,
    network_bits,
    read_pattern,
)
from rangecast.model.text.forms import ADDRESS, FOLDED, RAW, WORDS, fold, form_of, spaced

_ONE, _MANY = "\ud800", "\ud801"
"""Signs of `_` and `%`; no text has them."""
_WILD = re.compile(f"[{_ONE}{_MANY}]+")
_MAX_PAIRS = 1 << 14
"""Pairs of values or phrases of two conditions that are compared."""


class Atom(NamedTuple):
    """A pattern that a form of a text matches."""

    form: int
    pattern: str

    @property
    def is_value(self) -> bool:
        """Return whether only one text matches."""
        return _WILD.search(self.pattern) is None

    def runs(self) -> list[str]:
        """Return the runs of characters between wildcards."""
        return [run for run in _WILD.split(self.pattern) if run]


class Parts(NamedTuple):
    """A literal: patterns, of which all or at least one must match."""

    negated: bool
    every: bool
    atoms: frozenset[Atom]


def parts_of(literal: str) -> Parts:
    """Parse the canonical text of a literal."""
    node = read(literal, ())
    assert isinstance(node, Condition)
    term = node.terms[0] if node.form == "text" else TextTerm("in", node.terms)
    values = [str(word[1:-1]).replace("''", "'") for word in term.values]
    form = FOLDED if term.ignores_case else RAW
    if term.kind == "like":
        atoms = {Atom(form, _signs(read_pattern(values[0])))}
    elif term.kind == "in":
        atoms = {Atom(form, value) for value in values}
    elif term.kind == "cidr":
        atoms = {Atom(ADDRESS, network_bits(value) + _MANY) for value in values}
    else:
        phrases = [spaced(value.split(" ")) for value in values]
        atoms = {Atom(WORDS, f"{_MANY}{phrase}{_MANY}") for phrase in phrases}
    return Parts(node.negated, term.kind in ("all", "like"), frozenset(atoms))


def _signs(pattern: Pattern) -> str:
    signs = {ANY_CHARACTER: _ONE, ANY_RUN: _MANY}
    made = "".join(part if isinstance(part, str) else signs[part] for part in pattern)
    return _WILD.sub(_in_order, made)


def _in_order(run: re.Match[str]) -> str:
    """Write adjacent wildcards in one order: `%_` means the same as `_%`."""
    return _ONE * run[0].count(_ONE) + _MANY * (_MANY in run[0])


def contains(outer: list[Parts], inner: list[Parts]) -> bool:
    """Return whether a conjunction matches all texts that another one does; `False` if unknown."""
    return all(any(_literal_contains(literal, other) for other in inner) for literal in outer)


def _literal_contains(outer: Parts, inner: Parts) -> bool:
    if outer == inner:
        return True
    if outer.negated != inner.negated:
        return False
    if outer.negated:
        outer, inner = inner, outer
    if outer.every == inner.every:
        most, least = (inner, outer) if outer.every else (outer, inner)
        if least.atoms <= most.atoms:
            return True
    if len(outer.atoms) * len(inner.atoms) > _MAX_PAIRS:
        return False
    quantifier = all if outer.every else any
    if inner.every:
        return quantifier(any(_implies(a, b) for a in inner.atoms) for b in outer.atoms)
    return all(quantifier(_implies(a, b) for b in outer.atoms) for a in inner.atoms)


def _implies(inner: Atom, outer: Atom) -> bool:
    """Return whether a text that matches one pattern matches another one."""
    if inner.form == outer.form:
        return _matches(outer.pattern, inner.pattern)
    if inner.is_value and (inner.form == RAW or (inner.form, outer.form) == (FOLDED, WORDS)):
        held = form_of(inner.pattern, outer.form)
        return held is not None and _matches(outer.pattern, held.decode())
    if outer.form != FOLDED:
        return False
    if inner.form == RAW:  # one character may become several
        folded = fold(inner.pattern).replace(_ONE, _ONE + _MANY)
        return _matches(outer.pattern, _WILD.sub(_in_order, folded))
    if inner.form == WORDS:
        words = inner.pattern.strip(_MANY).split()
        return any(_matches(outer.pattern, f"{_MANY}{word}{_MANY}") for word in words)
    return False


def _matches(pattern: str, signs: str) -> bool:
    """Return whether a pattern matches signs, among which `_MANY` is matched by `%` alone."""
    *runs, last = pattern.split(_MANY)
    at, is_fixed = 0, True
    for run in runs:  # each is followed by `%`, so that `_` at its end may skip `_MANY`
        core = run.rstrip(_ONE)
        at = _end(core, signs, at, is_fixed=is_fixed)
        is_fixed = False
        for _ in range(len(run) - len(core)):
            while at >= 0 and signs.startswith(_MANY, at):
                at += 1
            at = at + 1 if 0 <= at < len(signs) else -1
        if at < 0:
            return False
    if not runs:
        return _end(last, signs, 0, is_fixed=True) == len(signs)
    begin = len(signs) - len(last)
    return begin >= at and _end(last, signs, begin, is_fixed=True) >= 0


def _end(run: str, signs: str, at: int, *, is_fixed: bool) -> int:
    """Return the end of a run that starts at, or from, an offset; -1 if there is none."""
    if _ONE in run:
        expression = _expression(run)
        match = expression.match(signs, at) if is_fixed else expression.search(signs, at)
        return -1 if match is None else match.end()
    if is_fixed:
        return at + len(run) if signs.startswith(run, at) else -1
    begin = signs.find(run, at)
    return -1 if begin < 0 else begin + len(run)


@cache
def _expression(run: str) -> re.Pattern[str]:
    return re.compile("".join(f"[^{_MANY}]" if sign == _ONE else re.escape(sign) for sign in run))
