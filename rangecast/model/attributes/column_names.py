"""Names of the file columns that attributes use, and reserved column names."""

from __future__ import annotations

RESERVED = ("id", "filter", "score", "seq")
"""Columns of files that no attribute may be taken for."""


def columns_of(name: str) -> dict[str, str]:
    """Return the file columns of an attribute, each with a description."""
    return {
        name: f"attribute {name!r}",
        f"weight_{name}": f"the weight of {name!r}",
        f"{name}_lo": f"a bound of {name!r}",
        f"{name}_hi": f"a bound of {name!r}",
        f"{name}_probability": f"the probability of {name!r}",
    }
