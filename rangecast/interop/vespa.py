"""Predicates of Vespa: `read` and `write`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangecast.errors import abbreviate
from rangecast.interop.export import Bound, ExportResult, Term, export
from rangecast.interop.result import (
    ImportResult,
    InvalidEntry,
    RepeatedKeys,
    import_rules,
    json_text,
    listed_texts,
    load_json,
    rules_by_id,
    rules_listed,
    unknown_shape,
)
from rangecast.interop.rules import AllOf, AnyOf, Rule, Test, UnsupportedRuleError, negated
from rangecast.model.space import Space

_WORDS = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z0-9_]+(?!\.\.)\b|[A-Za-z_][A-Za-z0-9_]*)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<range>\[\s*(?:[+-]?\d+)?\s*\.\.\s*(?:[+-]?\d+)?\s*\])
    |(?P<sign>[\[\](),])|(?P<bad>\S)|\Z)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_DEEPEST, _DIGITS = 100, 400
_EXPECTED = (
    'give {"id": predicate, ...}, or documents in the feed format: [{"put": "id:...", "fields": '
    '{"predicate": "..."}}, ...]'
)


def read(
    source: str | Path | Any, space: Space | None = None, *, field: str = "predicate"
) -> ImportResult:
    """Import predicates.

    source   a JSON file or its data: predicates by id, or a list of documents as they are fed
    space    the types of the attributes; by default ranges are of integers and values are texts
    field    the field of a document that has the predicate
    """
    data = load_json(source, "predicates by id")
    if isinstance(data, Mapping):
        rules = rules_by_id(data)
    elif isinstance(data, list):
        rules = rules_listed(
            data, lambda document: _document(document, field), _EXPECTED, "documents"
        )
    else:
        raise unknown_shape(data, _EXPECTED)
    return import_rules(rules, _rule, space)


def _document(value: Any, field: str) -> tuple[Any, Any] | None:
    fields = value.get("fields") if isinstance(value, Mapping) else None
    if not isinstance(fields, Mapping) or field not in fields:
        return None
    if isinstance(fields, RepeatedKeys):
        return value.get("put"), InvalidEntry(f"the field {fields.key!r} appears twice")
    return value.get("put"), fields[field]


def _rule(text: Any) -> Rule:
    if not isinstance(text, str):
        raise UnsupportedRuleError("", f"a predicate must be a string; given: {abbreviate(text)}")
    reading = _PredicateParser(text)
    rule = reading.either(0)
    reading.expect("")
    return rule


class _PredicateParser:
    """Parser of one predicate."""

    def __init__(self, text: str):
        self.words = [(token.lastgroup or "end", token) for token in _WORDS.finditer(text)]
        self.at = 0

    @property
    def kind(self) -> str:
        return self.words[self.at][0]

    @property
    def word(self) -> str:
        kind, token = self.words[self.at]
        return "" if kind == "end" else str(token[kind])

    def take(self) -> str:
        word = self.word
        self.at += word != ""
        return word

    def is_keyword(self, *words: str) -> bool:
        return self.kind in ("word", "sign") and self.word.lower() in words

    def expect(self, *words: str) -> None:
        if self.word.lower() not in words:
            raise self.unexpected(" or ".join(words) or "the end")
        self.take()

    def unexpected(self, wanted: str) -> UnsupportedRuleError:
        kind, token = self.words[self.at]
        position = f"character {token.start(kind if kind != 'end' else 0) + 1}"
        return UnsupportedRuleError(position, f"expected {wanted}, found {self.word or 'the end'}")

    def either(self, depth: int) -> Rule:
        if depth > _DEEPEST:
            raise UnsupportedRuleError("", f"parentheses are nested more than {_DEEPEST} deep")
        parts = [self.all(depth)]
        while self.is_keyword("or"):
            self.take()
            parts.append(self.all(depth))
        return AnyOf(tuple(parts))

    def all(self, depth: int) -> Rule:
        parts = [self.term(depth)]
        while self.is_keyword("and"):
            self.take()
            parts.append(self.term(depth))
        return AllOf(tuple(parts))

    def term(self, depth: int) -> Rule:
        inverse = self.is_keyword("not")
        if inverse:
            self.take()
        if self.is_keyword("("):
            self.take()
            rule = self.either(depth + 1)
            self.expect(")")
        elif self.is_keyword("true", "false"):
            rule = AllOf(()) if self.take().lower() == "true" else AnyOf(())
        else:
            rule = self.leaf()
        return negated(rule) if inverse else rule

    def leaf(self) -> Rule:
        name = self.value()
        inverse = self.is_keyword("not")
        if inverse:
            self.take()
        self.expect("in")
        if self.kind == "range":
            low, high = (end.strip() for end in self.take()[1:-1].split(".."))
            signs = ((">=", low), ("<=", high))
            if max(map(len, (low, high))) >= _DIGITS:
                raise UnsupportedRuleError(name, f"a bound has {_DIGITS} digits or more")
            bounds = tuple((sign, int(end)) for sign, end in signs if end)
            test = Test(name, name, "integer", bounds=bounds)
        else:
            test = Test(name, name, "text", values=tuple(self.values()))
        return negated(test) if inverse else test

    def values(self) -> list[str]:
        if not self.is_keyword("["):
            return [self.value()]
        self.take()
        values_ = [self.value()]
        while self.is_keyword(","):
            self.take()
            values_.append(self.value())
        self.expect("]")
        return values_

    def value(self) -> str:
        if self.kind == "word":
            return self.take()
        if self.kind != "text":
            raise self.unexpected("a name or a value")
        return _ESCAPE.sub(_unescaped, self.take()[1:-1])


def _unescaped(escape: re.Match[str]) -> str:
    mark = escape[1]
    return chr(int(mark[1:], 16)) if len(mark) == 3 else _ESCAPES.get(mark, mark)


def write(subscriptions: Any, space: Space) -> ExportResult:
    """Convert subscriptions to predicates, by id, as JSON.

    subscriptions    what `Engine.subscribe_many` takes: a file, a table, a list of dicts
    """
    return export(subscriptions, space, _predicate, json_text)


def _predicate(alternatives: list[list[Term]]) -> str:
    conjunctions = []
    for terms in alternatives:
        parts = [_condition(term) for term in terms]
        conjunctions.append(" and ".join(parts) or "true")
    if len(conjunctions) == 1:
        return conjunctions[0]
    return " or ".join(f"({conjunction})" for conjunction in conjunctions)


def _condition(term: Term) -> str:
    attribute = term.attribute
    name = _quoted(attribute.name)
    if attribute.type in ("number", "timestamp", "boolean"):
        reason = f"Vespa compares integers and strings; this is a {attribute.type}"
        raise UnsupportedRuleError(attribute.name, reason)
    if attribute.type == "integer":
        ranges: list[tuple[Bound, ...]] = [((">=", value), ("<=", value)) for value in term.values]
        ranges += [*term.spans, *([()] if term.any_value else [])]
        parts = [f"{name} in {_range_text(bounds)}" for bounds in ranges]
        if term.missing:
            parts.append(f"{name} not in [..]")
    else:
        return f"{name} {_texts(term)}"
    return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


def _texts(term: Term) -> str:
    """Return `in` or `not in` with a list; the latter also matches a missing text."""
    listed = listed_texts(term.attribute)
    values = listed if term.any_value and listed is not None else term.values
    excluded = term.excluded
    if term.missing and listed is not None:
        excluded = tuple(text for text in listed if text not in values)
    if bool(excluded) != term.missing or not (excluded or values):
        raise UnsupportedRuleError(
            term.attribute.name, "a test for a missing string must be combined with others"
        )
    return f"{'not in' if excluded else 'in'} [{', '.join(map(_quoted, excluded or values))}]"


def _range_text(bounds: tuple[Bound, ...]) -> str:
    ends = dict(bounds)
    return f"[{ends.get('>=', '')}..{ends.get('<=', '')}]"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + "'"
