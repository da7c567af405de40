"""Event patterns of Amazon EventBridge: `read` and `write`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangecast.interop.export import ExportResult, export
from rangecast.interop.patterns.reader import pattern_rule
from rangecast.interop.patterns.writer import Limits, pattern_of
from rangecast.interop.result import (
    ImportResult,
    import_rules,
    json_rule,
    json_text,
    load_json,
    rules_by_id,
    rules_listed,
    unknown_shape,
)
from rangecast.model.space import Space

LIMITS = Limits("EventBridge", largest=5e9, decimals=6)
_EXPECTED = (
    'give {"id": pattern, ...}, or what `aws events list-rules` prints: {"Rules": [{"Name": ..., '
    '"EventPattern": ...}, ...]}'
)


def read(source: str | Path | Mapping[str, Any], space: Space | None = None) -> ImportResult:
    """Import event patterns.

    source   a JSON file or its data: patterns by id, or what `aws events list-rules` prints
    space    the types of the fields; by default inferred from the patterns

    A field inside another is an attribute named by its path, such as `detail.state`.
    """
    data = load_json(source, "patterns by id")
    if isinstance(data, Mapping) and isinstance(data.get("Rules"), list):
        rules = rules_listed(data["Rules"], _listed, _EXPECTED, "Rules")
    elif isinstance(data, Mapping):
        rules = rules_by_id(data)
    else:
        raise unknown_shape(data, _EXPECTED)
    return import_rules(rules, lambda item: pattern_rule(json_rule(item)), space)


def _listed(rule: Any) -> tuple[Any, Any] | None:
    return (rule.get("Name"), rule.get("EventPattern")) if isinstance(rule, Mapping) else None


def write(subscriptions: Any, space: Space) -> ExportResult:
    """Convert subscriptions to event patterns, by id, as JSON.

    subscriptions    as for `Engine.subscribe_many`: a file, a table or a list of dicts
    """
    return export(
        subscriptions,
        space,
        lambda alternatives: pattern_of(alternatives, LIMITS),
        json_text,
        takes_prefixes=True,
    )
