"""The file of `match --rules`: rules and policies of subscriptions, as TOML.

accuracy = "error"                       # column of events

[rule]                                   # of all subscriptions
for = "30 s"

[rules.depot]                            # of one
margin = { position = "20 m" }

[policy]                                 # `policies.depot` is that of one
throttle = [3, "1 h"]
digest = { at = "08:00", zone = "Europe/Berlin" }
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rangecast.errors import RangecastError, UsageError, did_you_mean
from rangecast.model.sets.members import Id
from rangecast.track.delivery.policies import Policy
from rangecast.track.rules import Rule

_TABLES = ("accuracy", "rule", "rules", "policy", "policies")
Made = TypeVar("Made", Rule, Policy)


class TrackRules(NamedTuple):
    """Rules and policies of a tracker; `None` where the file has none."""

    rule: Rule | None = None
    rules: Mapping[Id, Rule] = {}
    accuracy: Any = None
    policy: Policy | None = None
    policies: Mapping[Id, Policy] = {}

    @property
    def has_policies(self) -> bool:
        """Whether the file sets any delivery policy."""
        return self.policy is not None or bool(self.policies)


def read_rules(path: Path, ids: type) -> TrackRules:
    """Return the rules of a file; `ids` is the id type of subscriptions."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        unknown = next((name for name in document if name not in _TABLES), None)
        if unknown is not None:
            raise UsageError(f"unknown table {unknown!r}: {did_you_mean(unknown, _TABLES)}")
        rule, policy = document.get("rule"), document.get("policy")
        return TrackRules(
            None if rule is None else _made("rule", Rule.of, rule),
            {
                ids(id_): _made(f"rules.{id_}", Rule.of, table)
                for id_, table in _rule_tables(document, "rules")
            },
            document.get("accuracy"),
            None if policy is None else _made("policy", Policy.of, policy),
            {
                ids(id_): _made(f"policies.{id_}", Policy.of, table)
                for id_, table in _rule_tables(document, "policies")
            },
        )
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--rules {path}: can't be read: {error}") from None
    except RangecastError as error:
        raise UsageError(f"--rules {path}: {error}") from None
    except ValueError:
        raise UsageError(
            f"--rules {path}: the ids of these subscriptions must be integers"
        ) from None


def _rule_tables(document: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    tables = document.get(name, {})
    if not isinstance(tables, dict):
        raise UsageError(f"{name!r} must be a table of tables, by subscription")
    return [*tables.items()]


def _made(table: str, make: Callable[[Any], Made], value: Any) -> Made:
    try:
        return make(value)
    except (TypeError, AttributeError) as error:
        raise UsageError(f"table {table!r}: {error}") from None
