"""Conditions on texts as literals: validation, canonical form and compilation to programs.

    title like 'red%'                    also starts_with, ends_with, contains; `ignore case`
    symbol in ('A', 'B', ...)            of more than `MAX_LISTED` values, or `ignore case`
    words(title) has all ('red', 'bike')     also `has any`
    ip in cidr ('10.0.0.0/8')

In a negated condition, `not` precedes `like` and `in`, or the whole of a condition on words.
"""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

from rangecast.errors import FilterError, InvalidValueError, did_you_mean
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import Interval, quoted
from rangecast.model.attributes.patterns import (
    LAST,
    ORDER_BYTES,
    Patterns,
    order_of,
    range_of_prefix,
)
from rangecast.model.attributes.text import String
from rangecast.model.filters.excerpts import clipped, fault
from rangecast.model.filters.grammar import Condition, TextTerm, read
from rangecast.model.filters.lexer import QUOTES, Word, name_of, name_text
from rangecast.model.space import Space
from rangecast.model.text.forms import ADDRESS, FOLDED, RAW, WORDS, fold, spaced, words_in
from rangecast.model.text.programs import (
    AT_END,
    AT_START,
    MATCH,
    ONE,
    SET,
    Part,
    match_program,
    set_program,
)

MAX_PATTERN = 4096
"""Bytes of a pattern, runs of `%` counted as one."""
MAX_ONES = 64
"""Characters between two `%` of a pattern, if `_` is among them."""
MAX_VALUES = 100_000
MAX_WORDS = 1024
ANY_CHARACTER, ANY_RUN = 1, 2
Pattern = list[str | int]
"""Runs of characters, `ANY_CHARACTER` and `ANY_RUN`."""


class ParsedLiteral(NamedTuple):
    """Parsed literal, in the form of programs."""

    kind: int
    form: int
    negated: bool
    program: F64
    bounds: Interval
    """Where the texts lie that it can hold for, in their order."""
    is_range: bool
    """Whether it holds for all texts that lie there."""
    is_never: bool = False
    """Whether it holds for no text."""


def literal_of(space: Space, text: str, node: Condition, *, negated: bool) -> tuple[int, str]:
    """Return the axis and canonical text of a text condition."""
    axis = _text_axis(space, text, node)
    term = node.terms[0]
    if not isinstance(term, TextTerm):
        term = TextTerm("in", node.terms)
    name = name_text(space.names[axis])
    values = [_value(space.attributes[axis], text, word) for word in term.values]
    shown = _shown(text, node, term, values)
    denied = "not " if negated else ""
    if term.kind in ("all", "any"):
        literal = f"{denied}words({name}) has {term.kind} ({_listed(shown)})"
    elif term.kind == "cidr":
        literal = f"{name} {denied}in cidr ({_listed(shown)})"
    elif term.kind == "in" and len(shown) > 1:
        literal = f"{name} {denied}in ({_listed(shown)})"
    else:
        literal = f"{name} {denied}like {quoted(shown[0])}"
    if term.ignores_case:
        literal += " ignore case"
    return axis, literal


def _listed(values: list[str]) -> str:
    return ", ".join(map(quoted, values))


def _shown(text: str, node: Condition, term: TextTerm, values: list[str]) -> list[str]:
    """Return the values of a condition in canonical form; reject invalid ones."""
    words = term.values
    if term.kind == "cidr":
        _count(text, node, len(values), MAX_WORDS, "networks")
        return sorted({_network(text, *pair) for pair in zip(words, values, strict=True)})
    if term.kind in ("all", "any"):
        _count(text, node, len(values), MAX_WORDS, "words")
        return sorted({_phrase(text, *pair) for pair in zip(words, values, strict=True)})
    if term.kind == "in":
        _count(text, node, len(values), MAX_VALUES, "values")
        distinct = sorted({fold(pair) if term.ignores_case else pair for pair in values})
        return distinct if len(distinct) > 1 else [written([distinct[0]] if distinct[0] else [])]
    if term.kind == "like":
        pattern = _pattern(text, words[0], values[0])
    else:
        before = [] if term.kind == "starts_with" else [ANY_RUN]
        after = [] if term.kind == "ends_with" else [ANY_RUN]
        pattern = [*before, values[0], *after] if values[0] else [ANY_RUN]
    if term.ignores_case:
        pattern = [fold(pair) if isinstance(pair, str) else pair for pair in pattern]
    shown = written(pattern)
    _check_size(text, words[0], shown)
    return [shown]


def _text_axis(space: Space, text: str, node: Condition) -> int:
    word = node.name
    name = name_of(str(word))
    axis = space.axes.get(name)
    if axis is None:
        problem = f"no attribute {clipped(name)!r}"
        raise fault(text, word.start, word.end, problem, did_you_mean(name, space.mentionable))
    if axis not in space.patterns:
        kind = space.attributes[axis].type
        problem = f"{clipped(name)!r} is a {kind}, which doesn't support patterns or words"
        hint = "give it the type 'text' in the space" if kind == "string" else ""
        raise fault(text, word.start, word.end, problem, hint)
    return axis


def _value(attribute: Any, text: str, word: Word) -> str:
    """Return the text value of a token."""
    if word[0] not in QUOTES:
        problem = f"a text can only be compared with a string; given: {clipped(str(word))}"
        raise fault(text, word.start, word.end, problem, f"quote it: {quoted(str(word))}")
    value = str(word[1:-1]).replace(word[0] * 2, word[0])
    try:
        assert isinstance(attribute, String)
        return attribute._text(value)
    except InvalidValueError as error:
        raise fault(text, word.start, word.end, error.reason) from None


def _count(text: str, node: Condition, count: int, most: int, what: str) -> None:
    if count > most:
        problem = f"this condition has {count:,} {what}, more than the {most:,} allowed"
        raise fault(text, *node.span, problem, "split it into several subscriptions")


def _check_size(text: str, word: Word, pattern: str) -> None:
    size = len(pattern.encode())
    if size > MAX_PATTERN:
        problem = f"this pattern has {size:,} bytes, more than the {MAX_PATTERN:,} allowed"
        raise fault(text, word.start, word.end, problem)
    for run in _runs(read_pattern(pattern)):
        length = sum(1 if term == ANY_CHARACTER else len(str(term)) for term in run)
        if ANY_CHARACTER in run and length > MAX_ONES:
            problem = (
                f"between two % of this pattern there are {length:,} characters including _, more "
                f"than the {MAX_ONES} allowed"
            )
            raise fault(text, word.start, word.end, problem)


def _phrase(text: str, word: Word, value: str) -> str:
    words = words_in(value)
    if not words:
        problem = f"{clipped(str(word))} has no word: words are runs of letters and digits"
        raise fault(
            text, word.start, word.end, problem, "use like or contains for other characters"
        )
    phrase = " ".join(words)
    size = len(phrase.encode())
    if size > MAX_PATTERN:
        problem = f"these words have {size:,} bytes, more than the {MAX_PATTERN:,} allowed"
        raise fault(text, word.start, word.end, problem)
    return phrase


def _network(text: str, word: Word, value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        problem = f"{clipped(str(word))} is not an IP network: {error}"
        raise fault(text, word.start, word.end, problem, "write it as '10.0.0.0/8'") from None


def _pattern(text: str, word: Word, value: str) -> Pattern:
    try:
        return read_pattern(value)
    except ValueError as error:
        raise fault(text, word.start, word.end, str(error)) from None


def read_pattern(value: str) -> Pattern:
    """Parse a `like` pattern; consecutive `%` count as one."""
    pattern: Pattern = []
    run: list[str] = []
    at = 0
    while at < len(value):
        sign = value[at]
        if sign == "\\":
            at += 1
            if at == len(value) or value[at] not in "%_\\":
                raise ValueError("a \\ in a pattern must precede %, _ or another \\")
            run.append(value[at])
        elif sign in "%_":
            if run:
                pattern.append("".join(run))
                run = []
            if sign == "_" or not pattern or pattern[-1] != ANY_RUN:
                pattern.append(ANY_CHARACTER if sign == "_" else ANY_RUN)
        else:
            run.append(sign)
        at += 1
    return [*pattern, "".join(run)] if run else pattern


_ESCAPED = str.maketrans({"%": "\\%", "_": "\\_", "\\": "\\\\"})


def written(pattern: Pattern) -> str:
    """Format a pattern for `like`."""
    signs = {ANY_CHARACTER: "_", ANY_RUN: "%"}
    return "".join(
        part.translate(_ESCAPED) if isinstance(part, str) else signs[part] for part in pattern
    )


def _runs(pattern: Pattern) -> list[Pattern]:
    """Split a pattern at its `%`."""
    runs: list[Pattern] = [[]]
    for part in pattern:
        if part == ANY_RUN:
            runs.append([])
        else:
            runs[-1].append(part)
    return [run for run in runs if run]


def _compiled(pattern: Pattern) -> tuple[int, list[Part]]:
    """Return the anchors of a pattern, and its parts in bytes."""
    fixed = AT_START * (pattern[:1] != [ANY_RUN]) + AT_END * (pattern[-1:] != [ANY_RUN])
    parts = []
    for run in _runs(pattern):
        part: Part = []
        for sign in run:
            part += map(float, sign.encode()) if isinstance(sign, str) else [ONE]
        parts.append(part)
    return fixed, parts


def read_literal(attribute: Patterns, literal: str) -> ParsedLiteral:
    """Parse a literal to the form of programs."""
    known = attribute.read.get(literal)
    if known is None:
        node = read(literal, ())
        if not isinstance(node, Condition) or node.form not in ("text", "equal"):
            raise FilterError(f"{clipped(literal)} is not a condition on a text")
        known = attribute.read[literal] = _read_node(node)
    assert isinstance(known, ParsedLiteral)
    return known


def bounds_of(attribute: Patterns, word: str) -> Interval:
    """Return a range that contains all texts that a conjunction can match.

    A contradictory conjunction is bounded by one of its conditions.
    """
    bounds = [read_literal(attribute, literal).bounds for literal in attribute.literals_in(word)]
    lo, hi = max(literal[0] for literal in bounds), min(literal[1] for literal in bounds)
    return (lo, hi) if lo <= hi else bounds[0]


def _read_node(node: Condition) -> ParsedLiteral:
    term = node.terms[0] if node.form == "text" else TextTerm("in", node.terms)
    values = [str(word[1:-1]).replace("''", "'") for word in term.values]
    form = FOLDED if term.ignores_case else RAW
    bounds, is_range = (0.0, LAST), False
    if term.kind == "in":
        texts = [value.encode() for value in values]
        if form == RAW and not node.negated:
            places = [order_of(text) for text in texts]
            bounds = min(places), max(places)
        return ParsedLiteral(SET, form, node.negated, set_program(texts), bounds, False)
    if term.kind == "like":
        pattern = read_pattern(values[0])
        if form == RAW and not node.negated:
            first = pattern[0] if pattern else ""
            prefix = first.encode() if isinstance(first, str) else b""
            bounds = range_of_prefix(prefix)
            is_prefix = pattern[1:] == [ANY_RUN] and 0 < len(prefix) <= ORDER_BYTES
            is_range = is_prefix or pattern == [ANY_RUN]
        program = match_program([_compiled(pattern)], every=True)
        is_never = node.negated and pattern == [ANY_RUN]
        return ParsedLiteral(MATCH, form, node.negated, program, bounds, is_range, is_never)
    if term.kind == "cidr":
        patterns = [_compiled([network_bits(value), ANY_RUN]) for value in values]
        program = match_program(patterns, every=False)
        return ParsedLiteral(MATCH, ADDRESS, node.negated, program, bounds, False)
    phrases = [_compiled([ANY_RUN, spaced(value.split(" ")), ANY_RUN]) for value in values]
    program = match_program(phrases, every=term.kind == "all")
    return ParsedLiteral(MATCH, WORDS, node.negated, program, bounds, False)


def network_bits(network: str) -> str:
    """Return the version of a network, and the bits that its addresses share."""
    parsed = ipaddress.ip_network(network)
    bits = f"{int(parsed.network_address):0{parsed.max_prefixlen}b}"
    return f"{parsed.version}{bits[: parsed.prefixlen]}"
