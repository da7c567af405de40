"""Edits that are about to be written, judged one after another: against what there is, and against
those before them in the same group.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rangecast.errors import RangecastError, shown
from rangecast.model.space import Space
from rangecast.server.records import (
    AddLetters,
    AnyEdit,
    DeleteConsumer,
    DeleteSubscription,
    DeleteToken,
    DropLetters,
    PutConsumer,
    PutSpace,
    PutSubscription,
    PutTenant,
    PutToken,
    StopConsumer,
)
from rangecast.server.registry import Name, RefusedError, Registry

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
ONLY_NEW = "new"
"""Instead of an ETag: there must be none."""
_ABSENT = object()


class Admission:
    """Judges the edits of a group, each with those before it, before any of them is written."""

    def __init__(self, registry: Registry, seq: int):
        self.seq = seq
        """The next edit's."""
        self._registry = registry
        self._subscriptions: dict[tuple[str, str, str], int | None] = {}
        self._consumers: dict[Name, str | None] = {}
        self._webhooks: dict[Name, bool] = {}
        self._spaces: dict[Name, Space] = {}
        self._tokens: dict[str, bool] = {}
        self._counts: dict[str, int] = {}
        self._owners: dict[tuple[str, str, str], str] = {}

        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []

    def check_all(self, edits: Sequence[AnyEdit], if_match: str | None = None) -> None:
        """Take edits into the group; if one can't be carried out, refuse all of them."""
        self._journal.clear()
        before = self.seq
        try:
            for edit in edits:
                self._check(edit, if_match)
                self.seq += 1
        except RangecastError:
            self.seq = before
            for table, key, old in reversed(self._journal):
                if old is _ABSENT:
                    table.pop(key, None)
                else:
                    table[key] = old
            raise

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._journal.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def _check(self, edit: AnyEdit, if_match: str | None) -> None:
        match edit:
            case PutSubscription():
                self._check_subscription(edit, if_match)
            case DeleteSubscription():
                key = edit.tenant, edit.space, edit.name
                self._check_match(self._version(key), edit.name, if_match)
                self._set(self._subscriptions, key, None)
                self._count(edit.tenant, -1)
            case PutSpace():
                self._check_space(edit)
            case PutConsumer():
                self._check_consumer(edit)
            case DeleteConsumer():
                self._remove_consumer(edit)
            case StopConsumer() | AddLetters() | DropLetters():
                self._need_consumer((edit.tenant, edit.name))
            case DeleteToken():
                if not self._tokens.get(edit.name, edit.name in self._registry.tokens):
                    raise RefusedError(404, "no such token")
                self._set(self._tokens, edit.name, False)
            case PutToken():
                self._set(self._tokens, edit.name, True)
            case PutTenant():
                pass

    def _check_subscription(self, edit: PutSubscription, if_match: str | None) -> None:
        if (edit.tenant, edit.space) not in self._spaces:
            self._registry.space(edit.tenant, edit.space)
        if edit.consumer:
            space = self._need_consumer((edit.tenant, edit.consumer))
            if space != edit.space:
                raise RefusedError(
                    409,
                    f"the consumer {shown(edit.consumer)} is of the space {shown(space)}, the "
                    f"subscription of {shown(edit.space)}\n"
                    "  to do: make a consumer for each space",
                )
        key = edit.tenant, edit.space, edit.name
        old = self._version_or_none(key)
        if if_match == ONLY_NEW:
            if old is not None:
                raise RefusedError(
                    412,
                    f"the subscription {shown(edit.name)} already exists\n"
                    "  to do: choose another id, or replace it",
                )
        elif if_match is not None:
            self._check_match(old, edit.name, if_match)
        if old is None:
            self._check_count(edit.tenant)
        self._set(self._subscriptions, key, self.seq)
        self._set(self._owners, key, edit.consumer)

    def _check_count(self, tenant: str) -> None:
        self._count(tenant, 1)
        count = self._registry.counts.get(tenant, 0) + self._counts[tenant]
        _check_limit("subscriptions", self._registry.tenants.get(tenant, {}), count)

    def _count(self, tenant: str, change: int) -> None:
        self._set(self._counts, tenant, self._counts.get(tenant, 0) + change)

    def _check_match(self, old: int | None, name: str, if_match: str | None) -> None:
        if old is None:
            raise RefusedError(404, f"no subscription {shown(name)}")
        if if_match is not None and if_match.strip('"') not in (str(old), "*"):
            raise RefusedError(
                412,
                f"the subscription {shown(name)} has changed: If-Match is {if_match}, "
                f'its ETag is "{old}"',
            )

    def _version(self, key: tuple[str, str, str]) -> int | None:
        tenant, space, _ = key
        if (tenant, space) not in self._spaces:
            self._registry.space(tenant, space)
        return self._version_or_none(key)

    def _version_or_none(self, key: tuple[str, str, str]) -> int | None:
        if key in self._subscriptions:
            return self._subscriptions[key]
        entry = self._registry.spaces.get(key[:2])
        found = None if entry is None else entry.live.get(key[2])
        if found is None:
            return None
        owner = self._registry.owner(found)
        if owner is not None and self._consumers.get((owner.tenant, owner.name), "") is None:
            return None  # gone with its consumer, earlier in this group
        return found.born

    def _consumer_space(self, name: Name) -> str | None:
        if name in self._consumers:
            return self._consumers[name]
        found = self._registry.consumers.get(name)
        return None if found is None else found.space.name

    def _need_consumer(self, name: Name) -> str:
        """Return the space of a consumer; refuse a name that there isn't."""
        space = self._consumer_space(name)
        if space is None:
            self._registry.consumer(*name)
            raise RefusedError(404, f"no consumer {shown(name[1])}")
        return space

    def _check_space(self, edit: PutSpace) -> None:
        key = edit.tenant, edit.name
        check_name("space", edit.name)
        new = Space.from_definition(edit.definition)
        old = self._spaces.get(key)
        if old is None and key in self._registry.spaces:
            old = self._registry.spaces[key].space
        if old is not None:
            check_growth(old, new)
        self._set(self._spaces, key, new)

    def _check_consumer(self, edit: PutConsumer) -> None:
        key = edit.tenant, edit.name
        check_name("consumer", edit.name)
        if (edit.tenant, edit.space) not in self._spaces:
            self._registry.space(edit.tenant, edit.space)
        old = self._consumer_space(key)
        if old is not None and old != edit.space:
            raise RefusedError(
                409,
                f"the consumer {shown(edit.name)} exists, of the space {shown(old)}\n"
                "  to do: delete it first, or choose another name",
            )
        self._set(self._consumers, key, edit.space)
        self._set(self._webhooks, key, edit.out.get("kind") == "webhook")
        if limits := self._registry.tenants.get(edit.tenant):
            self._check_consumer_counts(edit, limits, is_new=old is None)

    def _check_consumer_counts(
        self, edit: PutConsumer, limits: dict[str, int], *, is_new: bool
    ) -> None:
        before = self._registry.consumers
        names = {name for name in [*before, *self._consumers] if name[0] == edit.tenant}
        names = {name for name in names if self._consumer_space(name) is not None}
        if is_new:
            _check_limit("consumers", limits, len(names))
        if edit.out.get("kind") == "webhook":
            webhooks = sum(
                self._webhooks.get(one, one in before and before[one].out.get("kind") == "webhook")
                for one in names
            )
            _check_limit("webhooks", limits, webhooks)

    def _remove_consumer(self, edit: DeleteConsumer) -> None:
        key = edit.tenant, edit.name
        self._need_consumer(key)
        self._set(self._consumers, key, None)
        mine = [one for one, owner in self._owners.items() if (one[0], owner) == key]
        for one in mine:
            if self._subscriptions.get(one) is not None:
                self._set(self._subscriptions, one, None)


def _check_limit(name: str, limits: dict[str, int], count: int) -> None:
    """Refuse what would be one too many."""
    if name in limits and count > limits[name]:
        raise RefusedError(
            403,
            f"this tenant may have {limits[name]:,} {name}, and has {count - 1:,}\n"
            "  to do: delete some, or ask for a higher limit",
        )


def check_name(noun: str, name: str) -> None:
    """Refuse a name that wouldn't fit into a path and a log line."""
    if not NAME.fullmatch(name):
        raise RefusedError(
            422,
            f"the name of a {noun} is made of letters, digits, '_', '.' and '-', begins with a "
            f"letter or digit, and has at most 128 of them\n  given: {shown(name)}",
        )


def check_growth(old: Space, new: Space) -> None:
    """Refuse a space that isn't the old one, with attributes or categories added at its end."""
    wrong = None
    if new.names[: len(old)] != old.names:
        wrong = f"the attributes {', '.join(old.names)} come first, in this order"
    else:
        for was, now in zip(old, new, strict=False):
            before, after = was.definition(), now.definition()
            values, more = before.pop("values", []), after.pop("values", [])
            if before != after or more[: len(values)] != values:
                wrong = f"attribute {was.name!r} differs"
                break
    if wrong is not None:
        raise RefusedError(
            409,
            f"the space exists, and can't become this one: {wrong}\n"
            "  to do: add attributes, or values of a category, at the end; or make another space",
        )
