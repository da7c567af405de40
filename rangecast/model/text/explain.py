"""Explain text conditions for one event: `lacks the word 'bike'`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.display import cut
from rangecast.model.filters.grammar import Condition, read
from rangecast.model.text.conditions import read_literal
from rangecast.model.text.containment import parts_of
from rangecast.model.text.forms import RAW, fold, readable, spaced, words_in
from rangecast.model.text.programs import text_holds

_SHOWN = 60
"""Characters of a text that are shown."""


class ConjunctionResult(NamedTuple):
    """Result of evaluating a conjunction of text conditions on an event."""

    value: str
    lacking: str
    holds: bool


def compared(attribute: Patterns, word: str, handle: float) -> ConjunctionResult:
    """Return the conditions of a conjunction that an event's text fails."""
    if not np.isfinite(handle):
        return ConjunctionResult("(missing)", "", False)
    (text,) = TEXTS.get([handle])
    failed = [
        literal for literal in attribute.literals_in(word) if not _holds(attribute, literal, handle)
    ]
    lacking = "; ".join(_explain_literal(literal, text) for literal in failed)
    return ConjunctionResult(cut(text, _SHOWN), lacking, not failed)


def _holds(attribute: Patterns, literal: str, handle: float) -> bool:
    asked = read_literal(attribute, literal)
    point: F64 = np.array([[handle]])
    made, alive = readable(point, {0: {asked.form}})
    holds = text_holds(asked.program, 0, asked.kind, asked.form, made[0, 0])
    del alive
    return holds >= 0 and bool(holds) != asked.negated


def _explain_literal(literal: str, text: str) -> str:
    """Explain why a text fails a literal."""
    node = read(literal, ())
    assert isinstance(node, Condition)
    term = node.terms[0]
    if node.form == "text" and term.kind == "like" and not node.negated:
        (atom,) = parts_of(literal).atoms
        held = text if atom.form == RAW else fold(text)
        runs = [run for run in atom.runs() if run not in held]
        if runs:
            return f"lacks {_named(runs)}"
    if node.form != "text" or term.kind not in ("all", "any"):
        return f"{cut(literal, _SHOWN)} fails"
    phrases = [str(word[1:-1]) for word in term.values]
    held = spaced(words_in(text))
    there = [phrase for phrase in phrases if spaced([phrase]) in held]
    if node.negated:
        return f"has {_named(there)}"
    return f"lacks {_named([phrase for phrase in phrases if phrase not in there])}"


def _named(phrases: list[str]) -> str:
    shown = ", ".join(f"'{cut(phrase, _SHOWN)}'" for phrase in phrases[:5])
    return shown + (f" and {len(phrases) - 5} more" if len(phrases) > 5 else "")
