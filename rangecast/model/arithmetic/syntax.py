"""Syntax of filters with arithmetic: the filter grammar, extended by expressions.

    condition  sum < sum [< sum] | sum = sum | name [not] between sum and sum | or plain
    sum        product { + product }          also -
    product    factor { * factor }            also /
    factor     name | value | - factor | ( sum ) | function ( sum {, sum} )

Most filters have no arithmetic, so the plain parser runs first, and this one only if it fails.
If both fail, the error of the parser that got further is raised; the plain parser wins ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rangecast.errors import FilterError
from rangecast.model.filters.errors import unquoted_date
from rangecast.model.filters.grammar import (
    COMPARISON,
    MIRRORED,
    TERM,
    Condition,
    Group,
    Node,
    Parser,
    equal,
    read,
)
from rangecast.model.filters.lexer import QUOTES, Word, name_of, words_of

FUNCTIONS = ("abs", "min", "max")
_OPERATORS = {"+": "PLUS", "-": "MINUS", "*": "TIMES", "/": "DIVIDE"}
_OPERANDS = ("NAME", "VALUE", "RPAR")
"""Tokens after which a sign is an operator, not that of a number."""
_FACTOR = ("NAME", "VALUE", "LPAR", "MINUS", "FUNCTION")
_VALUES = ("VALUE", "BOOLEAN")
_UNEQUAL = ("!=", "<>")


class Operation:
    """Operator or function with its operands: `+`, `-`, `*`, `/`, `abs`, `min`, `max`."""

    __slots__ = ("first", "last", "operands", "operator", "size")

    def __init__(self, operator: str, operands: list[Operand], first: Word, last: Word):
        self.operator = operator
        self.operands = operands
        self.first, self.last = first, last
        self.size = sum(size_of(operand) for operand in operands) + (len(operands) == 1)
        """Numbers, names and signs in it."""


Operand = Word | Operation
Comparison = tuple[Operand, str, Operand]


def size_of(operand: Operand) -> int:
    """Return the number of literals, names and operators in an operand."""
    return operand.size if isinstance(operand, Operation) else 1


def leaves_of(operand: Operand) -> Iterator[Word]:
    """Yield the literals and names in an operand, at any depth."""
    pending = [operand]
    while pending:
        node = pending.pop()
        if isinstance(node, Operation):
            pending += reversed(node.operands)
        else:
            yield node


def is_number(operand: Any) -> bool:
    """Return whether an operand is a numeric literal."""
    return isinstance(operand, Word) and operand.kind == "VALUE" and operand[0] not in QUOTES


def _words_of(text: str) -> Iterator[Word]:
    """Tokenize a text; a sign after an operand is an operator."""
    before = ""
    for word in words_of(text, _OPERATORS):
        if word.kind == "VALUE" and word[0] in _OPERATORS and before in _OPERANDS:
            yield Word(_OPERATORS[word[0]], word[0], word.start)
            word = Word("VALUE", word[1:], word.start + 1)
        elif word.lower() in FUNCTIONS and text[word.end :].lstrip().startswith("("):
            word = Word("FUNCTION", str(word), word.start)
        before = word.kind
        yield word


def _ends(operand: Operand) -> list[Word]:
    return [operand.first, operand.last] if isinstance(operand, Operation) else [operand]


class _Parser(Parser):
    """Parser for filters with arithmetic; conditions without it become the plain parser's nodes.

    The terms of an `arithmetic` condition are comparisons, all of which must match.
    """

    def __init__(self, text: str, names: tuple[str, ...]):
        words: list[Word] = []
        super().__init__(text, names, _noted(_words_of(text), words))
        self._follows: dict[int, str] = {}
        """The kind of word behind the parenthesis that closes the one at an offset."""
        opened = []
        for index, word in enumerate(words[:-1]):
            if word.kind == "LPAR":
                opened.append(word.start)
            elif word.kind == "RPAR" and opened:
                self._follows[opened.pop()] = words[index + 1].kind

    def _group(self) -> Node:
        after = self._follows.get(self._word.start, "")
        is_operand = after in ("ORDER", "SAME") or after in _OPERATORS.values()
        return self._condition() if is_operand else super()._group()

    def _condition(self) -> Node:
        if self._is_text_call(self._word):
            return self._text_call(self._take("NAME"))
        if self._word.kind not in _FACTOR:
            if self._word.kind in TERM:
                return super()._condition()
            self._take(*TERM)
        left = self._sum()
        is_text = self._is_word("like", "contains")
        if _kind(left) == "NAME" and (is_text or self._word.kind in COMPARISON[2:]):
            assert isinstance(left, Word)
            return self._comparison(left)
        sign = self._take("ORDER", "SAME", expected=COMPARISON if _kind(left) == "NAME" else ())
        if sign.kind == "SAME":
            return self._equated(left, sign)
        right = self._sum()
        if self._word.kind == "ORDER":
            second = self._take("ORDER")
            return _chained(left, sign, right, second, self._sum())
        return _compared(left, sign, right)

    def _equated(self, left: Operand, sign: Word) -> Node:
        right = self._take("BOOLEAN") if self._word.kind == "BOOLEAN" else self._sum()
        if isinstance(left, Word) and isinstance(right, Word):
            if left.kind == "NAME" and right.kind in _VALUES:
                return self._without_case(equal(left, sign, right, [left, right]))
            if left.kind in _VALUES and right.kind == "NAME":
                return self._without_case(equal(right, sign, left, [left, right]))
        return _arithmetic([(left, "!=" if sign in _UNEQUAL else "=", right)])

    def _between(self, name: Word, sign: Word) -> Condition:
        low = self._sum()
        self._take("AND")
        high = self._sum()
        if _kind(low) == _kind(high) == "VALUE":
            return Condition("order", name, [(">=", sign, low), ("<=", sign, high)], [name, high])
        return _arithmetic([(name, ">=", low), (name, "<=", high)])

    def _sum(self) -> Operand:
        operand = self._product()
        while self._word.kind in ("PLUS", "MINUS"):
            sign = self._take("PLUS", "MINUS")
            operand = _operation(sign, operand, self._product())
        return operand

    def _product(self) -> Operand:
        operand = self._factor()
        while self._word.kind in ("TIMES", "DIVIDE"):
            sign = self._take("TIMES", "DIVIDE")
            operand = _operation(sign, operand, self._factor())
        return operand

    def _factor(self) -> Operand:
        signs = []
        while self._word.kind == "MINUS":
            signs.append(self._take("MINUS"))
        word = self._take(*_FACTOR)
        operand: Operand = word
        if word.kind == "LPAR":
            operand = self._sum()
            last = self._take("RPAR")
            if isinstance(operand, Operation):
                operand.first, operand.last = word, last
        elif word.kind == "FUNCTION":
            self._take("LPAR")
            operands = [self._sum()]
            while (last := self._take("COMMA", "RPAR")).kind == "COMMA":
                operands.append(self._sum())
            operand = Operation(word.lower(), operands, word, last)
        for sign in reversed(signs):
            operand = _negative(sign, operand)
        return operand


def _noted(words: Iterator[Word], noted: list[Word]) -> Iterator[Word]:
    """Record all tokens in `noted`, then yield them; raise a lexer error only at the end."""
    error = None
    try:
        noted.extend(words)
    except FilterError as unreadable:
        error = unreadable
    yield from noted
    if error is not None:
        raise error


def _operation(sign: Word, left: Operand, right: Operand) -> Operation:
    return Operation(str(sign), [left, right], _ends(left)[0], _ends(right)[-1])


def _negative(sign: Word, operand: Operand) -> Operand:
    if isinstance(operand, Word) and is_number(operand):
        size = operand.lstrip("+-")
        return Word("VALUE", size if operand[0] == "-" else f"-{size}", sign.start)
    return Operation("-", [operand], sign, _ends(operand)[-1])


def _compared(left: Operand, sign: Word, right: Operand) -> Node:
    if isinstance(left, Word) and isinstance(right, Word):
        if (left.kind, right.kind) == ("NAME", "VALUE"):
            return Condition("order", left, [(str(sign), sign, right)], [left, right])
        if (left.kind, right.kind) == ("VALUE", "NAME"):
            return Condition("order", right, [(MIRRORED[sign], sign, left)], [left, right])
    return _arithmetic([(left, str(sign), right)])


def _chained(low: Operand, first: Word, middle: Operand, second: Word, high: Operand) -> Node:
    if [_kind(operand) for operand in (low, middle, high)] == ["VALUE", "NAME", "VALUE"]:
        assert isinstance(middle, Word)
        terms = [(MIRRORED[first], first, low), (str(second), second, high)]
        return Condition("order", middle, terms, [low, high])
    return _arithmetic([(low, str(first), middle), (middle, str(second), high)])


def _kind(operand: Operand) -> str:
    return operand.kind if isinstance(operand, Word) else ""


def _arithmetic(comparisons: list[Comparison]) -> Condition:
    words = [*_ends(comparisons[0][0]), *_ends(comparisons[-1][-1])]
    return Condition("arithmetic", words[0], comparisons, words)


def read_tree(text: str, names: tuple[str, ...]) -> Node:
    """Parse the text of a filter, with or without arithmetic; `names` are attributes, for hints."""
    try:
        return read(text, names)
    except FilterError as error:
        if not isinstance(text, str) or unquoted_date(text):
            raise
        plain = error
    try:
        tree = _Parser(text, names).whole()
    except FilterError as error:
        raise _later(plain, error) from None
    for comparisons in _comparisons(tree):
        for side in (side for left, _, right in comparisons for side in (left, right)):
            # A word that is no attribute is most likely a text without quotes.
            if (
                isinstance(side, Word)
                and name_of(str(side)) not in names
                and plain.span == (side.start, side.end)
            ):
                raise plain
    return tree


def _later(plain: FilterError, other: FilterError) -> FilterError:
    """Return the error that is later in the text, or the plain parser's at the same position."""
    if plain.span is None or other.span is None or other.span <= plain.span:
        return plain
    return other


def _comparisons(tree: Node) -> Iterator[list[Comparison]]:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Condition):
            if node.form == "arithmetic":
                yield node.terms
        elif isinstance(node, Group):
            pending += node.parts
