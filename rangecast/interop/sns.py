"""Filter policies of Amazon SNS: `read` and `write`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangecast.interop.export import ExportResult, Term, export
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
from rangecast.interop.rules import AllOf, Rule, UnsupportedRuleError
from rangecast.model.space import Space

LIMITS = Limits("SNS", largest=1e9, decimals=5)
_EXPECTED = (
    'give {"id": policy, ...}, or a list of what `aws sns get-subscription-attributes` prints: '
    '[{"Attributes": {"SubscriptionArn": ..., "FilterPolicy": ...}}, ...]'
)


def read(source: str | Path | Any, space: Space | None = None) -> ImportResult:
    """Import filter policies.

    source   a JSON file or its data: policies by id, or a list of what
             `aws sns get-subscription-attributes` prints
    space    the types of the fields; by default inferred from the policies

    A subscription without a policy gets every message. With the scope MessageBody, a field inside
    another is an attribute named by its path.
    """
    data = load_json(source, "policies by id")
    if isinstance(data, Mapping) and "Attributes" in data:
        data = [data]
    if isinstance(data, Mapping):
        policies = {"FilterPolicyScope": "MessageBody"}
        rules = [(id_, policies | {"FilterPolicy": policy}) for id_, policy in rules_by_id(data)]
    elif isinstance(data, list):
        rules = rules_listed(data, _subscription, _EXPECTED, "subscriptions")
    else:
        raise unknown_shape(data, _EXPECTED)
    return import_rules(rules, _rule, space)


def _subscription(value: Any) -> tuple[Any, Any] | None:
    attributes = value.get("Attributes", value) if isinstance(value, Mapping) else None
    return (
        (attributes.get("SubscriptionArn"), attributes) if isinstance(attributes, Mapping) else None
    )


def _rule(attributes: Mapping[str, Any]) -> Rule:
    scope = attributes.get("FilterPolicyScope", "MessageAttributes")
    if scope not in ("MessageAttributes", "MessageBody"):
        raise UnsupportedRuleError("FilterPolicyScope", f"unknown scope {scope!r}")
    if "FilterPolicy" not in attributes:
        return AllOf(())
    return pattern_rule(json_rule(attributes["FilterPolicy"]), nested=scope == "MessageBody")


def write(subscriptions: Any, space: Space) -> ExportResult:
    """Convert subscriptions to filter policies, by id, as JSON.

    subscriptions    as for `Engine.subscribe_many`: a file, a table or a list of dicts

    A name with a dot becomes a nested field, which needs the scope MessageBody.
    """

    def rule_of(alternatives: list[list[Term]]) -> Any:
        return pattern_of(alternatives, LIMITS)

    return export(subscriptions, space, rule_of, json_text, takes_prefixes=True)
