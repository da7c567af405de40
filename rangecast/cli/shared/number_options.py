"""Error messages for number options with an invalid value."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args

import typer

_WORDS = {int: "a whole number", float: "a number"}


def number_error(error: typer.BadParameter) -> str | None:
    """Return an error message for an invalid number; `None` if the option takes no number."""
    context, parameter = error.ctx, error.param
    callback = getattr(getattr(context, "command", None), "callback", None)
    if callback is None or parameter is None:
        return None
    option = inspect.signature(callback, eval_str=True).parameters.get(str(parameter.name))
    kind, declared = _declared(option.annotation if option else None)
    if kind is None:
        return None
    return f"must be {_WORDS[kind]}{_range(declared)}{_given_value(error)}"


def _declared(hint: Any) -> tuple[type | None, Any]:
    """Return the number type of an option, and its declaration."""
    types = get_args(hint)
    if not hasattr(hint, "__metadata__"):
        return (hint if hint in _WORDS else None), None
    kinds = [word for word in _WORDS if word is types[0] or word in get_args(types[0])]
    return (kinds[0] if kinds else None), types[1]


def _range(declared: Any) -> str:
    least, most = getattr(declared, "min", None), getattr(declared, "max", None)
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if least is not None:
        return f", at least {least}"
    return "" if most is None else f", at most {most}"


def _given_value(error: typer.BadParameter) -> str:
    """Return the value that the user gave, as the option parser reports it."""
    cause: Any = error.__cause__ or error.__context__
    if hasattr(cause, "errors"):
        return f"; given: {cause.errors()[0]['input']}"
    quoted = re.match(r"'?(.+?)'? is not ", error.message)
    return f"; given: {quoted[1]}" if quoted else ""
