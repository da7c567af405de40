"""The syntax of filters: text to a small tree of conditions, before any attribute is looked up.

A LALR parser made by Lark takes the words of `words` and calls `_Builder` as it goes, so that no
parse tree is ever built. The tree is flat: `and` and `or` take any number of parts, `not` is a
flag, and the depth is bounded by that of parentheses.

Cost: linear in the text. What a condition means is decided in `meaning`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lark import Lark, UnexpectedToken

from rangecast.errors import FilterError, abbreviate
from rangecast.model.filters.errors import misplaced
from rangecast.model.filters.lexer import CALL, Word, Words

_GRAMMAR = """
?any: all | any OR all                              -> any_of
?all: term | all AND term                           -> all_of
?term: NOT term                                     -> negation
     | LPAR any RPAR                                -> group
     | BOOLEAN                                      -> truth
     | CALL                                         -> call
     | CALL ORDER VALUE                             -> call
     | CALL ORDER VALUE NAME                        -> call
     | NAME ORDER VALUE                             -> order
     | NAME SAME VALUE                              -> same
     | NAME SAME BOOLEAN                            -> same
     | VALUE ORDER NAME                             -> order_mirrored
     | VALUE SAME NAME                              -> same_mirrored
     | BOOLEAN SAME NAME                            -> same_mirrored
     | VALUE ORDER NAME ORDER VALUE                 -> chain
     | NAME BETWEEN VALUE AND VALUE                 -> between
     | NAME NOT BETWEEN VALUE AND VALUE             -> not_between
     | NAME IN LPAR values RPAR                     -> listed
     | NAME NOT IN LPAR values RPAR                 -> not_listed
     | NAME IS NULL                                 -> null
     | NAME IS NOT NULL                             -> not_null
values: VALUE | BOOLEAN | values COMMA VALUE | values COMMA BOOLEAN
%declare CALL NAME VALUE BOOLEAN ORDER SAME LPAR RPAR COMMA AND OR NOT BETWEEN IN IS NULL
"""

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_UNEQUAL = ("!=", "<>")


class Node:
    """A part of a filter, from its first word to its last."""

    __slots__ = ("first", "form", "last", "negated")

    def __init__(self, form: str, first: Word, last: Word):
        self.form = form
        self.first = first
        self.last = last
        self.negated = False

    @property
    def span(self) -> tuple[int, int]:
        """Where it stands in the text."""
        return self.first.start, self.last.end


class Condition(Node):
    """One comparison of one attribute.

    form     terms
    order    (sign, its word, value) for each bound that must hold, the attribute on the left
    equal    values, one of which must hold
    null     none
    truth    none; the name has no meaning
    call     sign, length and unit of a distance, or none; the name is the whole call
    """

    __slots__ = ("name", "terms")

    def __init__(self, form: str, name: Word, terms: list[Any], words: list[Any]):
        super().__init__(form, words[0], words[-1])
        self.name = name
        self.terms = terms


class Group(Node):
    """Several parts under one `and` or `or`."""

    __slots__ = ("parts",)

    def __init__(self, form: str, parts: list[Node]):
        super().__init__(form, parts[0].first, parts[-1].last)
        self.parts = parts


class _Builder:
    """Callbacks of the parser, one per rule, with all the words and parts of the rule."""

    def any_of(self, parts: list[Any]) -> Node:
        return _flat("or", parts[0], parts[2])

    def all_of(self, parts: list[Any]) -> Node:
        return _flat("and", parts[0], parts[2])

    def negation(self, parts: list[Any]) -> Node:
        sign, node = parts
        node.negated = not node.negated
        node.first = sign
        return node  # type: ignore[no-any-return]

    def group(self, parts: list[Any]) -> Node:
        left, node, right = parts
        node.first, node.last = left, right
        return node  # type: ignore[no-any-return]

    def truth(self, words: list[Word]) -> Node:
        node = Condition("truth", words[0], [], words)
        return _denied(node) if words[0].lower() == "false" else node

    def call(self, words: list[Word]) -> Node:
        return Condition("call", words[0], words[1:], words)

    def order(self, words: list[Word]) -> Node:
        name, sign, value = words
        return Condition("order", name, [(str(sign), sign, value)], words)

    def order_mirrored(self, words: list[Word]) -> Node:
        value, sign, name = words
        return Condition("order", name, [(_MIRRORED[sign], sign, value)], words)

    def chain(self, words: list[Word]) -> Node:
        low, first, name, second, high = words
        terms = [(_MIRRORED[first], first, low), (str(second), second, high)]
        return Condition("order", name, terms, words)

    def between(self, words: list[Word]) -> Node:
        low, high = words[-3], words[-1]
        return Condition(
            "order", words[0], [(">=", words[-4], low), ("<=", words[-4], high)], words
        )

    def not_between(self, words: list[Word]) -> Node:
        return _denied(self.between(words))

    def same(self, words: list[Word]) -> Node:
        name, sign, value = words
        node = Condition("equal", name, [value], words)
        return _denied(node) if sign in _UNEQUAL else node

    def same_mirrored(self, words: list[Word]) -> Node:
        value, sign, name = words
        node = Condition("equal", name, [value], words)
        return _denied(node) if sign in _UNEQUAL else node

    def listed(self, words: list[Any]) -> Node:
        return Condition("equal", words[0], words[-2], words)

    def not_listed(self, words: list[Any]) -> Node:
        return _denied(self.listed(words))

    def values(self, words: list[Any]) -> list[Word]:
        if len(words) == 1:
            return words
        words[0].append(words[2])
        return words[0]  # type: ignore[no-any-return]

    def null(self, words: list[Word]) -> Node:
        return Condition("null", words[0], [], words)

    def not_null(self, words: list[Word]) -> Node:
        return _denied(self.null(words))


def _flat(form: str, left: Node, right: Node) -> Group:
    parts = [right]
    if isinstance(right, Group) and right.form == form and not right.negated:
        parts = right.parts
    if isinstance(left, Group) and left.form == form and not left.negated:
        left.parts.extend(parts)
        left.last = right.last
        return left
    return Group(form, [left, *parts])


def _denied(node: Node) -> Node:
    node.negated = True
    return node


@cache
def _parser() -> Lark:
    return Lark(
        _GRAMMAR,
        parser="lalr",
        start="any",
        lexer=Words,
        transformer=_Builder(),
        keep_all_tokens=True,
    )


def read(text: str, names: tuple[str, ...]) -> Node:
    """Return the tree of a filter's text. `names` of attributes serve hints only."""
    if not isinstance(text, str):
        raise FilterError(f"a filter is a text; given: {abbreviate(text)}")
    if alone := CALL.fullmatch(text):  # most filters of shapes
        word = Word("CALL", alone[1], alone.start(1))
        return Condition("call", word, [], [word])
    try:
        return _parser().parse(text)  # type: ignore[return-value]
    except UnexpectedToken as error:
        raise misplaced(text, error, names) from None
