"""Index names with options after a colon: `vcr:side=16x8,overlapped`.

A structure declares its options by name: how each is parsed, and the constructor argument that it
sets. All interfaces (library, shell, Spark, pipelines) use this syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rangecast.errors import UsageError, abbreviate, choices_hint, did_you_mean

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


class Option(NamedTuple):
    """Option of an index structure."""

    argument: str
    """The argument of the structure that it becomes."""
    takes: str
    """The values that can be given, in words."""
    read: Callable[[str], Any]
    """Text to value; raises a `ValueError` if it can't."""
    is_flag: bool = False
    """Whether the name alone means yes."""


Options = Mapping[str, Option]
NO_OPTIONS: Options = {}


class NamedIndex(NamedTuple):
    """Requested index: its name, and the arguments from its options."""

    name: str
    arguments: dict[str, Any]


def flag(argument: str) -> Option:
    """Return a flag option, given by its name alone, or as yes or no."""
    return Option(argument, "yes or no", _yes_or_no, is_flag=True)


def whole(argument: str, least: int, most: int | None = None) -> Option:
    """Return an option that takes an integer."""
    limits = f"{least} or more" if most is None else f"{least} to {most}"

    def read(text: str) -> int:
        value = _digits(text)
        if value < least or (most is not None and value > most):
            raise ValueError
        return value

    return Option(argument, f"a whole number, {limits}", read)


def size(argument: str) -> Option:
    """Return an option that takes a size in bytes, KB, MB or GB."""
    return Option(argument, "a size such as 500MB or 2GB", _bytes)


def read_index(text: str, known: Mapping[str, Options], purpose: str = "") -> NamedIndex:
    """Parse a text such as `vcr:side=16x8,overlapped`.

    known     all available indexes, each with its options
    purpose   use of the index, for the error about an unknown one
    """
    if not isinstance(text, str):
        raise UsageError(
            f"an index name must be a string such as 'auto'; given: {abbreviate(text)}"
        )
    name, colon, rest = text.partition(":")
    if name not in known:
        raise UsageError(f"no index {name!r}{purpose}: {choices_hint(name, list(known))}")
    options = known[name]
    if not colon:
        return NamedIndex(name, {})
    if not options:
        raise UsageError(f"index {name!r} takes no options; given: {text!r}")
    arguments: dict[str, Any] = {}
    for item in rest.split(","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if key not in options:
            hint = did_you_mean(key, list(options))
            raise UsageError(f"index {name!r} has no option {key!r}; {hint} (given: {text!r})")
        option = options[key]
        if option.argument in arguments:
            raise UsageError(f"option {key!r} of index {name!r} is given twice: {text!r}")
        try:
            arguments[option.argument] = option.read(
                value if equals or not option.is_flag else "yes"
            )
        except ValueError:
            shown = repr(value) if equals else "no value"
            wanted = f"option {key!r} of index {name!r} takes {option.takes}"
            raise UsageError(f"{wanted}; given: {shown}") from None
    return NamedIndex(name, arguments)


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError
    return text == "yes"


def _digits(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError
    return int(text)


def _bytes(text: str) -> int:
    unit = text[-2:].upper()
    return _digits(text[:-2]) * _UNITS[unit] if unit in _UNITS else _digits(text)
