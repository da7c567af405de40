"""Boolean options. (Separate from `arguments`, so that a space is read without NumPy.)"""

from __future__ import annotations

from typing import Any

from rangecast.errors import UsageError, abbreviate


def flag(name: str, value: Any) -> bool:
    """Validate a Boolean option; reject other types, because a text such as "no" is truthy."""
    if value is True or value is False:
        return bool(value)
    kind = type(value)
    if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):
        return bool(value)
    raise UsageError(
        f"{name} must be True or False\n"
        f"  given: {kind.__name__} {abbreviate(value)}\n"
        f"  hint: give {name}=True or {name}=False"
    )
