"""Result of an import: subscriptions, the space that they need, and the rejected rules.

The types of attributes are those of a given space, or are inferred from the rules: the first rule
that compares a field decides, and one that disagrees is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rangecast.errors import (
    FileError,
    FilterError,
    SpaceError,
    UsageError,
    abbreviate,
    did_you_mean,
)
from rangecast.interop.rules import (
    AllOf,
    AnyOf,
    FilterText,
    Rule,
    Test,
    UnsupportedRuleError,
    coordinate_rule,
    tests_of,
    text_of,
)
from rangecast.model.attributes.base import Attribute, Boolean, Integer, Number
from rangecast.model.attributes.column_names import RESERVED
from rangecast.model.attributes.patterns import Text
from rangecast.model.attributes.places import Location
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space


@dataclass(frozen=True)
class Rejection:
    """A rule that cannot be imported, or a subscription that cannot be exported, and why."""

    id: str
    place: str
    """The offending part, as a path such as `detail.state`."""
    reason: str


@dataclass(frozen=True)
class ImportResult:
    """The rules of another system as subscriptions."""

    subscriptions: list[dict[str, str]]
    """`id` and `filter` of each: what `Engine.subscribe_many` takes."""
    rejected: list[Rejection]
    """Rules without an exact counterpart; no part of them is imported."""
    space: Space | None
    """The given space, or the one that the rules need; `None` if they need none."""
    notes: list[str]
    """Warnings to read before use: inferred types, shapes that are only candidates."""


_TYPES: dict[str, tuple[type[Attribute], ...]] = {
    "number": (Number, Integer),
    "integer": (Integer, Number),
    "text": (String, Category, Hierarchy),
    "boolean": (Boolean,),
    "moment": (Timestamp,),
    "location": (Location,),
}
"""Attribute types that fit the operand of a test; a new attribute gets the first one."""
_DIGITS = 400
"""Number of digits that no operand of a rule reaches."""
_NOUNS = {"number": "a number", "integer": "a whole number", "text": "a text"}
_NOUNS |= {"boolean": "true or false", "moment": "a moment", "location": "a place"}


@dataclass(frozen=True)
class InvalidEntry:
    """An entry that is not a rule, and the reason."""

    reason: str


def import_rules(
    rules: Iterable[tuple[str, Any]], rule_of: Callable[[Any], Rule], space: Space | None
) -> ImportResult:
    """Import rules, given with their ids; `rule_of` reads one of them.

    A faulty rule is rejected alone, with the reason.
    """
    attributes = _Attributes(space)
    rejected: list[Rejection] = []
    texts: dict[str, str] = {}
    seen = set()
    for id_, definition in rules:
        try:
            if not id_:
                raise UnsupportedRuleError("", "the id is empty")
            if id_ in seen:
                raise UnsupportedRuleError("", "duplicate id")
            seen.add(id_)
            _check_utf8(id_)
            text = text_of(attributes.settle(id_, rule_of(_readable(definition))))
            if text is False:
                raise UnsupportedRuleError("", "this rule can never match")
            _check_utf8("" if text is True else text)
            texts[id_] = "true" if text is True else text
        except Exception as error:  # a rule is foreign data: whatever is wrong, it fails alone
            rejected.append(_rejection(id_, error))
    built = attributes.space()
    subscriptions = []
    for id_, text in texts.items():
        try:
            # Its shortest text: boxes of a hierarchy as concepts, nothing said twice.
            normalized = text if built is None else str(Filter.parse(text, built))
            subscriptions.append({"id": id_, "filter": normalized})
        except Exception as error:
            rejected.append(_rejection(id_, error))
    return ImportResult(subscriptions, rejected, built, attributes.notes())


def _rejection(id_: str, error: Exception) -> Rejection:
    """Return the rejection of a rule whose reading raised an error."""
    shown_id = id_.encode("utf-8", "backslashreplace").decode() or '""'
    if isinstance(error, UnsupportedRuleError):
        path, reason = error.place, error.reason
    elif isinstance(error, FilterError):
        path, reason = "", error.reason.partition(" (line ")[0]
    elif isinstance(error, RecursionError):
        path, reason = "", "the rule is nested too deeply"
    else:
        path, reason = "", f"can't be read: {type(error).__name__}: {error}"
    both = (text_.encode("utf-8", "backslashreplace").decode() for text_ in (str(path), reason))
    return Rejection(shown_id, *both)


def _check_utf8(text: str, path: str = "") -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnsupportedRuleError(path, "has a string that isn't valid UTF-8") from None


def _readable(value: Any) -> Any:
    """Return a rule; reject anything that isn't one, or that has a key twice."""
    if isinstance(value, InvalidEntry):
        raise UnsupportedRuleError("", value.reason)
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, RepeatedKeys):
            raise UnsupportedRuleError(item.key, f"the key {item.key!r} appears twice")
        if isinstance(item, Mapping):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return value


class _Attributes:
    """Attributes tested by rules, and the origin of their types."""

    def __init__(self, space: Space | None):
        self._given = space
        self._known: dict[str, Attribute] = {} if space is None else {a.name: a for a in space}
        self._type_source: dict[str, str] = dict.fromkeys(self._known, "the space")
        self._untyped: dict[str, None] = {}
        """Attributes so far only tested for presence."""
        self._folded: dict[str, None] = {}
        """Attributes compared without case."""
        self._columns = dict.fromkeys(RESERVED, "")
        """Columns that files may have, with their attributes."""

    def settle(self, id_: str, rule: Rule) -> Rule:
        """Return a rule whose tests fit the types of their attributes; add new attributes."""
        new: dict[str, Attribute] = {}
        untyped: dict[str, None] = {}
        columns = dict(self._columns) if self._given is None else {}
        for test in tests_of(rule):
            attribute = new.get(test.name) or self._known.get(test.name)
            if attribute is None:
                attribute = self._new(test, columns)
                if test.kind is None:
                    untyped[test.name] = None
                else:
                    new[test.name] = attribute
            elif test.patterns and self._given is None and type(attribute) is String:
                new[test.name] = attribute = Text(test.name)
                self._take_columns(test, attribute, columns)
            elif test.kind and not isinstance(attribute, _TYPES[test.kind]):
                type_source = self._type_source.get(test.name, "another part of this rule")
                raise UnsupportedRuleError(
                    test.place,
                    f"compares {test.name!r} with {_NOUNS[test.kind]}; its type is "
                    f"{attribute.type} by {type_source}, and an attribute has one type",
                )
        settled = self._settled(rule, self._known | new)
        self._type_source |= dict.fromkeys(new, f"rule {id_!r}")
        self._known |= new
        self._untyped |= untyped
        self._columns = columns
        return settled

    def _new(self, test: Test, columns: dict[str, str]) -> Attribute:
        """Return a new attribute for a test, with a free name; reserve its columns."""
        name = test.name
        if self._given is not None:
            hint = did_you_mean(name, self._given.names)
            raise UnsupportedRuleError(test.place, f"the space has no attribute {name!r}: {hint}")
        try:
            _check_utf8(name, test.place)
            attribute = _new_attribute(test)
        except SpaceError as error:
            raise UnsupportedRuleError(test.place, str(error)) from None
        self._take_columns(test, attribute, columns)
        return attribute

    def _take_columns(self, test: Test, attribute: Attribute, columns: dict[str, str]) -> None:
        """Reserve the columns of an attribute; reject a conflict with another attribute."""
        name = test.name
        taken = [name, f"weight_{name}", f"{name}_lo", f"{name}_hi", f"{name}_probability"]
        if isinstance(attribute, Text):
            taken += [each.name for each in attribute.companions]
        if isinstance(attribute, Location):
            taken += [each.name for each in attribute.coordinates]
        for column in taken:
            other = columns.setdefault(column, name)
            if other != name:
                what = f"of attribute {other!r}" if other else "reserved in files"
                reason = f"{name!r} can't be an attribute: {column!r} is a column {what}"
                raise UnsupportedRuleError(test.place, reason)

    def _settled(self, rule: Rule, known: Mapping[str, Attribute]) -> Rule:
        if isinstance(rule, FilterText):
            return rule
        if not isinstance(rule, Test):
            parts = tuple(self._settled(part, known) for part in rule.parts)
            return AllOf(parts) if isinstance(rule, AllOf) else AnyOf(parts)
        attribute = known.get(rule.name)
        if isinstance(attribute, Location):
            return coordinate_rule(rule, attribute)
        listed = None if attribute is None else listed_texts(attribute)
        if rule.words is not None:
            if listed is None and isinstance(attribute, Text) and rule.patterns:
                if any(pattern.endswith(" ignore case") for pattern in rule.patterns):
                    self._folded[rule.name] = None
                return rule
            if listed is None:
                texts = "a text, a category" if rule.patterns else "a category"
                raise UnsupportedRuleError(
                    rule.place,
                    f"requires a list of all values of {rule.name!r}; declare it as {texts} or a "
                    "hierarchy, and pass that space",
                )
            passing = tuple(text for text in listed if rule.words(text))
            return replace(rule, words=None, values=passing)
        if rule.values is not None and listed is not None:
            # No event has another value; and a concept of a tree isn't one.
            return replace(rule, values=tuple(v for v in rule.values if v in set(listed)))
        return rule

    def space(self) -> Space | None:
        """Return the space that the rules need."""
        if self._given is not None:
            return self._given
        untyped = [String(name) for name in self._untyped if name not in self._known]
        attributes = [*self._known.values(), *untyped]
        return Space(attributes) if attributes else None

    def notes(self) -> list[str]:
        """Return notes on case folding and on inferred types."""
        folded = [
            f"{name!r} is compared with full Unicode case folding, where ß equals ss"
            for name in self._folded
        ]
        return folded + [
            f"{name!r} is only tested for presence, so its type is taken to be string"
            for name in self._untyped
            if name not in self._known
        ]


def _new_attribute(test: Test) -> Attribute:
    name = test.name
    if test.kind == "location":
        return Location(name, longitude=f"{name}.lon", latitude=f"{name}.lat", earth="sphere")
    return Text(name) if test.patterns else _TYPES[test.kind or "text"][0](name)


def listed_texts(attribute: Attribute) -> tuple[str, ...] | None:
    """Return all values of an attribute that lists its texts, `None` for other attributes."""
    if isinstance(attribute, Category):
        return attribute.values
    return tuple(attribute.leaves) if isinstance(attribute, Hierarchy) else None


class RepeatedKeys(dict[str, Any]):
    """A JSON object with a repeated key; as a dict, it has the last value."""

    def __init__(self, pairs: list[tuple[str, Any]], key: str):
        super().__init__(pairs)
        self.pairs, self.key = pairs, key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    object_ = dict(pairs)
    if len(object_) == len(pairs):
        return object_
    keys = [key for key, _ in pairs]
    return RepeatedKeys(pairs, next(key for at, key in enumerate(keys) if key in keys[:at]))


def _whole_number(text: str) -> int | float:
    """Parse a whole number; more digits than a double can have make it infinite, and rejected."""
    return int(text) if len(text) < _DIGITS else float(text)


def _loaded(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, parse_int=_whole_number)


def load_json(value: Any, what: str) -> Any:
    """Parse a JSON file; a value that isn't a path is returned unchanged.

    An object with a repeated key is `RepeatedKeys`. Bytes that aren't UTF-8 become lone
    surrogates: the rule that has them is rejected.
    """
    if not isinstance(value, str | Path):
        return value
    try:
        text = Path(value).read_text(encoding="utf-8-sig", errors="surrogateescape")
        return _loaded(text)
    except OSError as error:
        raise FileError(f"{value}: can't be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{value}: not JSON: {error}\n  hint: give {what} as JSON") from None


def rules_by_id(data: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """Return the rules of a JSON object by id; a repeated id appears twice."""
    pairs = data.pairs if isinstance(data, RepeatedKeys) else data.items()
    return [(str(id_), rule) for id_, rule in pairs]


def rules_listed(
    listed: Sequence[Any],
    rule_of: Callable[[Any], tuple[Any, Any] | None],
    expected: str,
    noun: str,
) -> list[tuple[str, Any]]:
    """Return the rules of a list: `rule_of` returns id and rule, or None for an invalid entry.

    Invalid entries are rejected one by one, by position; if all are invalid, the list is.
    """
    rules: list[tuple[str, Any]] = []
    wrong: list[Any] = []
    for number, rule in enumerate(listed):
        pair = rule_of(rule)
        if pair is None or pair[0] is None:
            wrong.append(rule)
            pair = (
                f"{noun}[{number}]",
                InvalidEntry(f"is not a rule with an id; given: {abbreviate(rule)}"),
            )
        elif isinstance(rule, RepeatedKeys):
            pair = pair[0], InvalidEntry(f"the key {rule.key!r} appears twice")
        rules.append((str(pair[0]), pair[1]))
    if wrong and len(wrong) == len(rules):
        raise unknown_shape(wrong[0], expected)
    return rules


def json_rule(value: Any) -> Any:
    """Parse a rule that may be a JSON text inside JSON, as AWS lists them."""
    if not isinstance(value, str):
        return value
    try:
        return _readable(_loaded(value))
    except (ValueError, RecursionError) as error:
        raise UnsupportedRuleError("", f"not JSON: {error}") from None


def json_text(rules: Any) -> str:
    """Return rules as the text of a JSON file."""
    return json.dumps(rules, indent=2, ensure_ascii=False) + "\n"


def unknown_shape(value: Any, expected: str) -> UsageError:
    """Return the error for data without recognizable rules."""
    return UsageError(f"no rules were found\n  given: {abbreviate(value)}\n  hint: {expected}")
