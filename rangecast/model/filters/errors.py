"""Messages for unexpected tokens: the expected ones, and a hint."""

from __future__ import annotations

import re

from rangecast.errors import FilterError, did_you_mean
from rangecast.model.attributes.base import quoted
from rangecast.model.filters.excerpts import clipped, fault
from rangecast.model.filters.lexer import QUOTES, Word

_PHRASES = {
    "AND": "'and'",
    "OR": "'or'",
    "COMMA": "','",
    "LPAR": "'('",
    "RPAR": "')'",
    "BETWEEN": "'between'",
    "IN": "'in'",
    "NOT": "'not'",
    "NULL": "'null'",
    "ORDER": "<, <=, >, >=",
    "SAME": "=, !=",
}


_DATE = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9:.]+(?:Z|[+-][0-9:]+)?)?")
"""A moment without quotes, which is cut into several numbers."""
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_GROUPED = re.compile(r"(?<![\w.,(])[0-9]{1,3}(?:,[0-9]{3})+\b")


_PATTERNS = {
    *("like", "ilike", "rlike", "regexp", "regex", "similar", "glob", "matches"),
    *("contains", "startswith", "starts", "endswith", "ends", "prefix", "suffix"),
}
"""Words of other languages that compare a text with a pattern."""


def _expected(accepted: set[str], unclosed: bool) -> str:
    if {"NAME", "LPAR"} <= accepted:
        return "a condition such as x > 5" if "NOT" in accepted else "a number or an attribute"
    if "VALUE" in accepted:
        return "a value" if "BOOLEAN" in accepted else "a number or a quoted string"
    if "NAME" in accepted:
        return "the name of an attribute"
    if {"SAME", "IS"} <= accepted:
        return "a comparison such as =, <, between, in or is null"
    if "OR" in accepted:
        return f"'and', 'or' or {_PHRASES['RPAR'] if unclosed else 'the end'}"
    phrases = [phrase for kind, phrase in _PHRASES.items() if kind in accepted]
    return " or ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)


def unquoted_date(text: str) -> bool:
    """Return whether a text may contain an unquoted date, rather than a subtraction."""
    return _DATE.search(_QUOTED.sub("''", text)) is not None


def unexpected_token(
    text: str,
    word: Word,
    accepted: set[str],
    names: tuple[str, ...],
    *,
    unclosed: bool,
    is_empty: bool,
) -> FilterError:
    """Return the error for the token at which the parser failed.

    unclosed   whether a parenthesis is open at that point
    is_empty   whether it is the first token
    """
    at_end = word.kind == "END"
    if at_end and is_empty:
        return FilterError(
            "the filter is empty; expected a condition such as x > 5",
            "write true to match every event",
        )
    shown = clipped(str(word))
    if word.kind == "NAME":
        shown = f"the word {shown}"
    elif word.kind == "VALUE":
        shown = f"the {'text' if word[0] in QUOTES else 'number'} {shown}"
    else:
        shown = "the end of the text" if at_end else f"'{shown}'"
    hint = _remedy(text, word, accepted, names)
    problem = f"expected {_expected(accepted, unclosed)}, found {shown}"
    return fault(text, word.start, word.end, problem, hint)


_FUNCTIONS = "functions are abs, min, max, starts_with and so on; or write a value: 5 or 'tech'"
_CALLED = re.compile(r"(?<!\w)(?!and\b|or\b|not\b|in\b)[^\W\d]\w*\s*$", re.IGNORECASE)
"""A name right before a parenthesis."""


def _remedy(text: str, unexpected: Word, accepted: set[str], names: tuple[str, ...]) -> str:
    """Return a hint for a misplaced token, if the mistake can be guessed."""
    word = clipped(str(unexpected))
    for pattern, advice in ((_DATE, "put a date in quotes"), (_GROUPED, "leave out the comma")):
        for split in pattern.finditer(text):
            if split.start() < unexpected.start < split.end():
                shown = quoted(split[0]) if pattern is _DATE else split[0].replace(",", "")
                return f"{advice}: {shown}"
    if unexpected.kind == "LPAR" and _CALLED.search(text, 0, unexpected.start):
        return _FUNCTIONS
    if "VALUE" in accepted and "NAME" not in accepted:
        if unexpected in names:
            return "compare an attribute with a value, a number or another numeric attribute"
        if unexpected.kind == "NAME" and text[unexpected.end :].lstrip().startswith("("):
            return _FUNCTIONS
        if unexpected.kind == "NULL":
            return "write `is null` or `is not null`"
        return f"quote strings: {quoted(word)}" if unexpected.kind == "NAME" else ""
    if accepted == {"NAME"} and unexpected.kind == "VALUE":
        return "compare an attribute with a value; write its name without quotes, or in `...`"
    if "IS" in accepted and unexpected.kind in ("AND", "OR", "RPAR", "END"):
        return "compare the attribute with a value; for a boolean, write = true"
    if "NULL" in accepted:
        return "use = to compare with a value"
    if unexpected.kind == "NAME" and text[unexpected.start - 1] in QUOTES:
        return "double a quote inside a string"
    if "IS" in accepted and unexpected.lower() in _PATTERNS:
        return "text patterns are like 'a%' and contains 'a'; regular expressions are not supported"
    if unexpected.kind == "NAME":
        known = [phrase.strip("'") for kind, phrase in _PHRASES.items() if kind in accepted]
        guess = did_you_mean(unexpected.lower(), [k for k in known if k.isalpha()])
        return guess if guess.startswith("did") else ""
    return ""
