"""Lexer of filters: one regular expression splits a text into tokens and drops comments.

kind       text
NAME       an identifier that is not a keyword, or anything in `...`
VALUE      a number, or a text in quotes
BOOLEAN    true, false
ORDER      <, <=, >, >=
SAME       =, ==, !=, <>
CALL       a whole call such as within(position, circle(1, 2, 5 km))
LPAR RPAR COMMA, and each other keyword as a kind of its own
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rangecast.errors import FilterError
from rangecast.model.filters.excerpts import clipped, fault

DEEPEST = 100
"""Maximum nesting of parentheses."""

QUOTES = "'\""
KEYWORDS = {w: w.upper() for w in ("and", "or", "not", "between", "in", "is", "null")}
KEYWORDS |= {"true": "BOOLEAN", "false": "BOOLEAN"}

_CALL = r"""(?i:within|distance)\s*+\((?:[^()'"]
      |'[^']*+(?:''[^']*+)*+'|"[^"]*+(?:""[^"]*+)*+"
      |\((?:[^()'"]|'[^']*+(?:''[^']*+)*+'|"[^"]*+(?:""[^"]*+)*+")*+\))*+\)"""
CALL = re.compile(rf"\s*+({_CALL})\s*+", re.VERBOSE)
"""A filter that is one call."""
_WORDS = re.compile(
    rf"""(?:\s+|--[^\n]*|\#[^\n]*)*+(?:
    (?P<CALL>{_CALL})
  | (?P<WORD>[^\W\d]\w*)
  | (?P<VALUE>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])
      | '[^']*+(?:''[^']*+)*+' | "[^"]*+(?:""[^"]*+)*+")
  | (?P<ORDER><=|>=|<(?!>)|>)
  | (?P<SAME>==?|!=|<>)
  | (?P<LPAR>\()
  | (?P<RPAR>\))
  | (?P<COMMA>,)
  | (?P<NAME>`[^`]*+(?:``[^`]*+)*+`)
  | (?P<BAD>[+-]?\.?[0-9][\w.]*|.)
  | \Z)""",
    re.VERBOSE | re.DOTALL,
)
_KINDS = ("", *_WORDS.groupindex)
_INSTEAD = {
    "&": "write and instead of &",
    "|": "write or instead of |",
    "!": "write not instead of !",
}
_INSTEAD |= dict.fromkeys("+-*/", "an operator needs a number or an attribute on both sides")
_INSTEAD |= dict.fromkeys("%^", "arithmetic operators are +, -, * and /")
_INSTEAD |= dict.fromkeys("\u2018\u2019\u201c\u201d", "use straight quotes, ' or \"")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*\Z")


NO_OPERATORS: Mapping[str, str] = {}


class Word(str):
    """Token of a filter, with its position in the text."""

    __slots__ = ("kind", "start")
    kind: str
    start: int
    """Offset of the first character."""

    def __new__(cls, kind: str, text: str, start: int) -> Word:
        word = str.__new__(cls, text)
        word.kind = kind
        word.start = start
        return word

    @property
    def end(self) -> int:
        """Offset just past the last character."""
        return self.start + len(self)


def words_of(text: str, operators: Mapping[str, str] = NO_OPERATORS) -> Iterator[Word]:
    """Tokenize a text lazily; the last token is an empty END.

    operators   additional token kinds for single characters
    """
    depth = end = 0
    keyword = KEYWORDS.get
    for match in _WORDS.finditer(text):
        group = match.lastindex
        if group is None:
            break
        kind = _KINDS[group]
        text_of_word = match[group]
        start, end = match.span(group)
        if kind == "WORD":
            kind = keyword(text_of_word.lower(), "NAME")
        elif kind == "LPAR":
            depth += 1
            if depth > DEEPEST:
                problem = f"parentheses are nested more than {DEEPEST} deep"
                hint = "remove those that aren't needed"
                raise fault(text, start, start + 1, problem, hint)
        elif kind == "RPAR":
            depth -= 1
        elif kind == "BAD":
            if text_of_word not in operators:
                raise _unreadable(text, start, text_of_word)
            kind = operators[text_of_word]
        yield Word(kind, text_of_word, start)
    yield Word("END", "", end)


def name_of(word: str) -> str:
    """Return the attribute name that a token stands for."""
    return word[1:-1].replace("``", "`") if word[0] == "`" else word


def name_text(name: str) -> str:
    """Return an attribute name as written in a filter."""
    if _PLAIN_NAME.match(name) and name.lower() not in KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _unreadable(text: str, at: int, rest: str) -> FilterError:
    if rest in ("'", '"', "`"):
        what = "name" if rest == "`" else "text"
        return fault(
            text,
            at,
            at + 1,
            f"the {what} that starts here has no closing {rest}",
            f"close it; double a {rest} inside it",
        )
    if len(rest) > 1:
        problem = f"{clipped(rest)} is not a number"
        return fault(text, at, at + len(rest), problem, "quote strings '...' and names `...`")
    hint = _INSTEAD.get(rest, "")
    return fault(text, at, at + 1, f"the character {rest!r} has no meaning here", hint)
