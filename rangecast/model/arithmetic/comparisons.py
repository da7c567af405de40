"""Arithmetic comparisons as literals: validation, canonical text and compilation to programs."""

from __future__ import annotations

import numpy as np

from rangecast.errors import FilterError, InvalidValueError, did_you_mean
from rangecast.kernels.arrays import F64
from rangecast.model.arithmetic import programs
from rangecast.model.arithmetic.syntax import (
    Comparison,
    Operand,
    Operation,
    leaves_of,
    read_tree,
    size_of,
)
from rangecast.model.attributes.base import Attribute, Integer, Number
from rangecast.model.attributes.residuals import Arithmetic
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.filters.excerpts import clipped, fault
from rangecast.model.filters.grammar import Condition
from rangecast.model.filters.lexer import QUOTES, Word, name_of, name_text
from rangecast.model.space import Space

MAX_SIZE = 64
"""Numbers, names and signs of a condition; its program needs at most 8 places on the stack."""
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_COMPARED = {"<": programs.LESS, "<=": programs.AT_MOST, ">": programs.GREATER}
_COMPARED |= {">=": programs.AT_LEAST, "=": programs.EQUAL, "!=": programs.UNEQUAL}
_OPERATIONS = {"+": programs.ADD, "-": programs.SUBTRACT, "*": programs.MULTIPLY}
_OPERATIONS |= {"/": programs.DIVIDE, "min": programs.MINIMUM, "max": programs.MAXIMUM}
_SWAPPED = {programs.SUBTRACT: programs.SUBTRACT_FROM, programs.DIVIDE: programs.DIVIDE_INTO}
_SUM, _PRODUCT, _SIGNED, _ATOM = 1, 2, 3, 4
"""Precedence of an expression."""


def literals_of(space: Space, text: str, node: Condition, *, negated: bool) -> list[str]:
    """Return a condition as literals: all must match, or any one of them if negated."""
    attribute = arithmetic_of(space, text, node)
    literals = []
    for comparison in node.terms:
        _check(space, text, node, comparison)
        left, sign, right = comparison
        sign = _OPPOSITE[sign] if negated else sign
        literal = f"{operand_text(left)} {sign} {operand_text(right)}"
        attribute.read[literal] = program_of(space, (left, sign, right))[0]
        literals.append(literal)
    (_, sign, middle), (other, second, _) = node.terms[0], node.terms[-1]
    if middle is other and sign[0] != second[0]:
        problem = "the two signs of a chain must point the same way, as in a <= x + y < b"
        raise fault(text, *node.span, problem)
    return literals


def arithmetic_of(space: Space, text: str, node: Condition) -> Arithmetic:
    """Return the space's arithmetic attribute; raise if it has none."""
    for attribute in space:
        if isinstance(attribute, Arithmetic):
            return attribute
    problem = "this condition needs arithmetic, which this space doesn't allow"
    hint = "add an attribute to the space: name = 'arithmetic', type = 'arithmetic'"
    raise fault(text, *node.span, problem, hint)


def _check(space: Space, text: str, node: Condition, comparison: Comparison) -> None:
    left, _, right = comparison
    if size_of(left) + size_of(right) > MAX_SIZE:
        problem = (
            f"this condition has {size_of(left) + size_of(right):,} operands and operators, more "
            f"than the {MAX_SIZE} allowed"
        )
        raise fault(
            text, *node.span, problem, "compute parts of it beforehand, as attributes of events"
        )
    names = [word for side in (left, right) for word in leaves_of(side) if _is_name(word)]
    are_moments = len(names) == 2 and isinstance(left, Word) and isinstance(right, Word)
    for side in (left, right):
        for word in leaves_of(side):
            _check_operand(space, text, word, are_moments=are_moments)
    kinds = {isinstance(_attribute(space, text, word), Timestamp) for word in names}
    if len(kinds) > 1:
        raise fault(text, *node.span, "a timestamp can only be compared with a timestamp")
    if not names:
        raise fault(text, *node.span, "this condition mentions no attribute")
    for side in (left, right):
        _check_functions(text, side)


def _check_functions(text: str, operand: Operand) -> None:
    if not isinstance(operand, Operation):
        return
    count = len(operand.operands)
    if operand.operator == "abs" and count != 1:
        problem = f"abs takes one argument; given: {count}"
        raise fault(text, operand.first.start, operand.last.end, problem)
    for operand_ in operand.operands:
        _check_functions(text, operand_)


def _is_name(word: Word) -> bool:
    return word.kind == "NAME"


def _attribute(space: Space, text: str, word: Word) -> Attribute:
    name = name_of(str(word))
    axis = space.axes.get(name)
    if axis is None:
        hint = did_you_mean(name, space.mentionable)
        raise fault(text, word.start, word.end, f"no attribute {clipped(name)!r}", hint)
    return space.attributes[axis]


def _check_operand(space: Space, text: str, word: Word, *, are_moments: bool) -> None:
    if _is_name(word):
        attribute = _attribute(space, text, word)
        if isinstance(attribute, Number | Integer):
            return
        if isinstance(attribute, Timestamp):
            if are_moments:
                return
            problem = f"{attribute.name!r} is a timestamp, which supports comparisons only"
            raise fault(
                text, word.start, word.end, problem, "add a number with the time in seconds"
            )
        problem = f"{attribute.name!r} is a {attribute.type}; arithmetic takes numbers"
        raise fault(text, word.start, word.end, problem)
    if word[0] in QUOTES:
        problem = f"{clipped(str(word))} is a string; arithmetic takes numbers"
        raise fault(text, word.start, word.end, problem)
    try:
        Number("constant").coordinate(Number("constant").parse(str(word)))
    except InvalidValueError as error:
        raise fault(text, word.start, word.end, error.reason) from None


def _number(word: Word) -> float:
    return float(word) + 0.0


def has_attributes(operand: Operand) -> bool:
    """Return whether an operand refers to an attribute."""
    return any(_is_name(word) for word in leaves_of(operand))


def mirrored(comparison: Comparison) -> Comparison:
    """Return a comparison with its sides swapped."""
    left, sign, right = comparison
    return right, _MIRRORED[sign], left


def values_of(space: Space, comparison: Comparison, point: F64) -> list[float]:
    """Return the coordinates that a comparison reads."""
    words = [*leaves_of(comparison[0]), *leaves_of(comparison[2])]
    return [float(point[space.axes[name_of(str(word))]]) for word in words if _is_name(word)]


def operand_text(operand: Operand, least: int = 0) -> str:
    """Return the text of an operand, parenthesized if its precedence is below `least`."""
    if isinstance(operand, Word):
        if _is_name(operand):
            return name_text(name_of(str(operand)))
        number = Number("constant").literal(_number(operand))
        return f"({number})" if number[0] == "-" and least > _SIGNED else number
    operator, operands = operand.operator, operand.operands
    if operator not in "+-*/":
        return f"{operator}({', '.join(operand_text(operand_) for operand_ in operands)})"
    if len(operands) == 1:
        binding, text = _SIGNED, f"-{operand_text(operands[0], _ATOM)}"
    else:
        binding = _SUM if operator in "+-" else _PRODUCT
        left, right = operand_text(operands[0], binding), operand_text(operands[1], binding + 1)
        text = f"{left} {operator} {right}"
    return f"({text})" if binding < least else text


def program_of(space: Space, comparison: Comparison) -> tuple[F64, bool]:
    """Return the program of a comparison, and whether its sides are swapped."""
    left, sign, right = comparison
    first, second = _steps(space, left), _steps(space, right)
    is_swapped = first[0] < second[0]
    if is_swapped:
        steps = [*second[1], *first[1], (_COMPARED[_MIRRORED[sign]], 0.0)]
    else:
        steps = [*first[1], *second[1], (_COMPARED[sign], 0.0)]
    return np.array(steps, np.float64).reshape(-1), is_swapped


def _steps(space: Space, operand: Operand) -> tuple[int, list[tuple[int, float]]]:
    """Return the stack depth that an operand needs, and its instructions."""
    if isinstance(operand, Word):
        if _is_name(operand):
            return 1, [(programs.LOAD, float(space.axes[name_of(str(operand))]))]
        return 1, [(programs.CONSTANT, _number(operand))]
    room, steps = _steps(space, operand.operands[0])
    if len(operand.operands) == 1:
        if operand.operator in ("min", "max"):
            return room, steps
        opcode = programs.NEGATE if operand.operator == "-" else programs.ABSOLUTE
        return room, [*steps, (opcode, 0.0)]
    operation = _OPERATIONS[operand.operator]
    for other in operand.operands[1:]:
        second, more = _steps(space, other)
        if second > room:
            steps = [*more, *steps, (_SWAPPED.get(operation, operation), 0.0)]
        else:
            steps = [*steps, *more, (operation, 0.0)]
        room = max(room, second, min(room, second) + 1)
    return room, steps


def programs_of(space: Space, attribute: Arithmetic, word: str) -> list[F64]:
    """Return the programs of a conjunction, one per literal."""
    return [_read(space, attribute, literal) for literal in attribute.literals_in(word)]


def _read(space: Space, attribute: Arithmetic, literal: str) -> F64:
    known = attribute.read.get(literal)
    if known is not None:
        return known  # type: ignore[no-any-return]
    return program_of(space, comparison_of(space, literal))[0]


def comparison_of(space: Space, literal: str) -> Comparison:
    """Parse a literal into a comparison."""
    node = read_tree(literal, space.names)
    if not isinstance(node, Condition) or node.form != "arithmetic":
        raise FilterError(f"{clipped(literal)} is not a comparison of numbers")
    comparison: Comparison = node.terms[0]
    return comparison
