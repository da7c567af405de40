"""Grammar of filters: parses a text to a tree of conditions, without looking up attributes.

    any        all { or all }
    all        term { and term }
    term       { not } ( condition | "(" any ")" )
    condition  name < value | name = value | value < name [< value] | value = name
               name [not] between value and value | name [not] in ( value {, value} )
               name is [not] null | true | false | call [< value [name]]
               name [not] like value | name [not] contains value | name [not] in cidr values
               starts_with ( name , value ), also ends_with, contains
               words ( name ) has [all | any] values
    values     value | ( value {, value} )

A comparison of a text may end with `ignore case`. The words of text conditions are not reserved:
they are recognized only where no other token is valid.

Each method parses one rule with one token of lookahead. The tree is flat: `and` and `or` take any
number of parts, `not` is a flag, and the depth is bounded by that of parentheses.

Cost: linear in the text. `compile` determines the meaning of a condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from rangecast.errors import FilterError, abbreviate
from rangecast.model.filters.errors import unexpected_token
from rangecast.model.filters.excerpts import clipped, fault
from rangecast.model.filters.lexer import CALL, Word, words_of

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_UNEQUAL = ("!=", "<>")
TERM = ("NAME", "VALUE", "BOOLEAN", "CALL", "NOT", "LPAR")
COMPARISON = ("ORDER", "SAME", "BETWEEN", "IN", "IS", "NOT")
TEXT_FUNCTIONS = ("starts_with", "ends_with", "contains", "words")
_TEXT_OPERATORS = ("like", "contains")
_OPENED = re.compile(r"\s*+\(")
_NO_CASE = "expected 'case' behind 'ignore'"
_NEXT = ("AND", "OR")
"""Kinds of words that may follow a condition, beside a parenthesis and the end."""


class Node:
    """Node of a filter's syntax tree, from its first token to its last."""

    __slots__ = ("first", "form", "last", "negated")

    def __init__(self, form: str, first: Word, last: Word):
        self.form = form
        self.first = first
        self.last = last
        self.negated = False

    @property
    def span(self) -> tuple[int, int]:
        """Start and end offsets in the text."""
        return self.first.start, self.last.end


class TextTerm(NamedTuple):
    """Comparison of a text with values.

    kind   like, contains, starts_with, ends_with, in, cidr, all, any; the last two compare words
    """

    kind: str
    values: list[Word]
    ignores_case: bool = False


class Condition(Node):
    """Comparison of one attribute.

    form     terms
    order    (operator, its token, value) for each bound that must match, the attribute on the left
    equal    values, one of which must match
    null     none
    truth    none; the name is unused
    call     operator, length and unit of a distance, or none; the name is the whole call
    arithmetic  comparisons that must all match; the name is unused
    text     a single `TextTerm`
    """

    __slots__ = ("name", "terms")

    def __init__(self, form: str, name: Word, terms: list[Any], words: list[Any]):
        super().__init__(form, words[0], words[-1])
        self.name = name
        self.terms = terms


class Group(Node):
    """Several nodes joined by `and` or `or`."""

    __slots__ = ("parts",)

    def __init__(self, form: str, parts: list[Node]):
        super().__init__(form, parts[0].first, parts[-1].last)
        self.parts = parts


class Parser:
    """Recursive-descent parser of filters."""

    def __init__(self, text: str, names: tuple[str, ...], words: Iterator[Word] | None = None):
        self._text = text
        self._names = names
        self._words = words_of(text) if words is None else words
        self._last: Word | None = None
        self._open = 0
        """Parentheses that are open."""
        self._word = next(self._words)

    def whole(self) -> Node:
        """Parse the whole text."""
        node = self._any()
        self._take("END", expected=_NEXT)
        return node

    def _take(self, *kinds: str, expected: tuple[str, ...] = ()) -> Word:
        """Consume a token of these kinds; `expected` lists more kinds for the error message."""
        word = self._word
        if word.kind not in kinds:
            is_empty = self._last is None
            accepted = {*kinds, *expected}
            raise unexpected_token(
                self._text, word, accepted, self._names, unclosed=self._open > 0, is_empty=is_empty
            )
        self._last = word
        self._word = next(self._words, word)  # the end is the last one
        return word

    def _any(self) -> Node:
        """Parse terms joined by `and` and `or`."""
        result: Node | None = None
        while True:
            part = self._term()
            while self._word.kind == "AND":
                self._take("AND")
                part = _flat("and", part, self._term())
            result = part if result is None else _flat("or", result, part)
            if self._word.kind != "OR":
                return result
            self._take("OR")

    def _term(self) -> Node:
        first = self._word
        is_denied = False
        while self._word.kind == "NOT":
            self._take("NOT")
            is_denied = not is_denied
        node = self._group() if self._word.kind == "LPAR" else self._condition()
        if first.kind == "NOT":
            node.first = first
        node.negated ^= is_denied
        return node

    def _group(self) -> Node:
        left = self._take("LPAR")
        self._open += 1
        node = self._any()
        node.first, node.last = left, self._take("RPAR", expected=_NEXT)
        self._open -= 1
        return node

    def _condition(self) -> Node:
        word = self._take(*TERM)
        if word.kind == "NAME":
            return self._text_call(word) if self._is_text_call(word) else self._comparison(word)
        if word.kind == "CALL":
            return self._call(word)
        if word.kind == "VALUE":
            sign = self._take("ORDER", "SAME")
            name = self._take("NAME")
            if sign.kind == "SAME":
                return equal(name, sign, word, [word, name])
            terms = [(MIRRORED[sign], sign, word)]
            last = name
            if self._word.kind == "ORDER":
                second = self._take("ORDER")
                last = self._take("VALUE")
                terms.append((str(second), second, last))
            return Condition("order", name, terms, [word, last])
        if self._word.kind == "SAME":
            sign, name = self._take("SAME"), self._take("NAME")
            return equal(name, sign, word, [word, name])
        node = Condition("truth", word, [], [word])
        node.negated = word.lower() == "false"
        return node

    def _comparison(self, name: Word) -> Node:
        if self._is_word(*_TEXT_OPERATORS):
            return self._text_condition(name)
        sign = self._take(*COMPARISON)
        if sign.kind == "ORDER":
            value = self._take("VALUE")
            return Condition("order", name, [(str(sign), sign, value)], [name, value])
        if sign.kind == "SAME":
            value = self._take("VALUE", "BOOLEAN")
            return self._without_case(equal(name, sign, value, [name, value]))
        is_denied = sign.kind == "NOT"
        if is_denied and self._is_word(*_TEXT_OPERATORS):
            node = self._text_condition(name)
            node.negated = True
            return node
        if is_denied:
            sign = self._take("BETWEEN", "IN")
        if sign.kind == "BETWEEN":
            node = self._between(name, sign)
        elif sign.kind == "IN" and self._is_word("cidr"):
            self._take("NAME")
            values, last = self._values()
            node = Condition("text", name, [TextTerm("cidr", values)], [name, last])
        elif sign.kind == "IN":
            values, last = self._listed()
            node = self._without_case(Condition("equal", name, values, [name, last]))
        else:
            is_denied = self._word.kind == "NOT"
            if is_denied:
                self._take("NOT")
            last = self._take("NULL", expected=() if is_denied else ("NOT",))
            node = Condition("null", name, [], [name, last])
        node.negated = is_denied
        return node

    def _between(self, name: Word, sign: Word) -> Condition:
        low = self._take("VALUE")
        self._take("AND")
        high = self._take("VALUE")
        return Condition("order", name, [(">=", sign, low), ("<=", sign, high)], [name, high])

    def _listed(self) -> tuple[list[Word], Word]:
        """Parse a parenthesized list of values; return them and the closing token."""
        self._take("LPAR")
        values = [self._take("VALUE", "BOOLEAN")]
        while (word := self._take("COMMA", "RPAR")).kind == "COMMA":
            values.append(self._take("VALUE", "BOOLEAN"))
        return values, word

    def _values(self) -> tuple[list[Word], Word]:
        """Parse one value or a parenthesized list; return the values and the last token."""
        if self._word.kind == "LPAR":
            return self._listed()
        value = self._take("VALUE", expected=("LPAR",))
        return [value], value

    def _is_word(self, *words: str) -> bool:
        return self._word.kind == "NAME" and self._word.lower() in words

    def _is_text_call(self, word: Word) -> bool:
        is_function = word.kind == "NAME" and word.lower() in TEXT_FUNCTIONS
        return is_function and _OPENED.match(self._text, word.end) is not None

    def _text_condition(self, name: Word) -> Condition:
        """Parse the text operator and pattern after an attribute's name."""
        kind = self._take("NAME").lower()
        value = self._take("VALUE")
        return self._without_case(Condition("text", name, [TextTerm(kind, [value])], [name, value]))

    def _text_call(self, function: Word) -> Condition:
        self._take("LPAR")
        name = self._take("NAME")
        kind = function.lower()
        if kind != "words":
            self._take("COMMA")
            value = self._take("VALUE")
            last = self._take("RPAR")
            node = Condition("text", name, [TextTerm(kind, [value])], [function, last])
            return self._without_case(node)
        self._take("RPAR")
        if not self._is_word("has"):
            word = self._word
            problem = f"expected 'has' after words(...), found {clipped(str(word)) or 'the end'}"
            hint = "write words(title) has all ('red', 'bike'), or has any (...)"
            raise fault(self._text, word.start, word.end, problem, hint)
        self._take("NAME")
        quantity = self._take("NAME").lower() if self._is_word("all", "any") else "all"
        values, last = self._values()
        return Condition("text", name, [TextTerm(quantity, values)], [function, last])

    def _without_case(self, node: Condition) -> Condition:
        """Parse an optional `ignore case` after a condition."""
        if not self._is_word("ignore"):
            return node
        self._take("NAME")
        if not self._is_word("case"):
            word = self._word
            raise fault(self._text, word.start, max(word.end, word.start + 1), _NO_CASE)
        last = self._take("NAME")
        if node.form == "equal":
            term = TextTerm("in", node.terms, True)
        else:
            term = node.terms[0]._replace(ignores_case=True)
        made = Condition("text", node.name, [term], [node.first, last])
        made.negated = node.negated
        return made

    def _call(self, call: Word) -> Node:
        words = [call]
        if self._word.kind == "ORDER":
            words += [self._take("ORDER"), self._take("VALUE")]
            if self._word.kind == "NAME":
                words.append(self._take("NAME"))
        return Condition("call", call, words[1:], words)


def equal(name: Word, sign: Word, value: Word, ends: list[Word]) -> Condition:
    """Return the condition that an attribute equals, or does not equal, a value."""
    node = Condition("equal", name, [value], ends)
    node.negated = sign in _UNEQUAL
    return node


def _flat(form: str, left: Node, right: Node) -> Group:
    parts = [right]
    if isinstance(right, Group) and right.form == form and not right.negated:
        parts = right.parts
    if isinstance(left, Group) and left.form == form and not left.negated:
        left.parts.extend(parts)
        left.last = right.last
        return left
    return Group(form, [left, *parts])


def read(text: str, names: tuple[str, ...]) -> Node:
    """Parse a filter's text to a tree. Attribute `names` are used only for hints."""
    if not isinstance(text, str):
        raise FilterError(f"a filter must be a string; given: {abbreviate(text)}")
    if alone := CALL.fullmatch(text):  # most filters of shapes
        word = Word("CALL", alone[1], alone.start(1))
        return Condition("call", word, [], [word])
    return Parser(text, names).whole()
