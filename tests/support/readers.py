"""Readers of single values: the verdict on a value, alone and in files."""

from __future__ import annotations

from rangecast.model.attributes.base import Boolean, Integer, Number
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp

ATTRIBUTES = {
    "number": Number("a"),
    "integer": Integer("a"),
    "integer with domain": Integer("a", min=0, max=10),
    "timestamp": Timestamp("a"),
    "boolean": Boolean("a"),
    "category": Category("a", ["tech", "5", "true", ""]),
    "string": String("a", ["tech", "5", "é", ""]),
    "hierarchy": Hierarchy("a", {"EU": ["de", "5"], "tech": ["x"]}),
}
