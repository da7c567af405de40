"""What there is: spaces, subscriptions, consumers, tokens, tenants. A function of the log's edits.

`Admission` judges edits that are about to be written, one after another, against what there is and
against those before them in the same group. `Registry.apply` carries out what was written; it can't
fail, and gives the same on every machine. What it means for the index of a space comes back as a
`Change`, which the matcher carries out before it matches an event with a larger seq.

A subscription has a *number* for as long as it lives; each filter that it has had is a *version*,
which is kept as long as the log has an event that it could have matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rangecast.errors import RangecastError, near, shown
from rangecast.model.filters.filter import Filter
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

NEVER = 1 << 62
NOBODY = -1
"""The consumer of a subscription that has none."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
ONLY_NEW = "new"
"""Instead of an ETag: there must be none."""
_ABSENT = object()
Name = tuple[str, str]
"""A tenant, and the name of something of his."""


class RefusedError(RangecastError):
    """A request that can't be carried out, with the HTTP status that says so."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class Version(msgspec.Struct, eq=False, array_like=True):
    """A subscription as it was from one edit to another."""

    number: int
    id: str
    filter: str
    consumer: int
    born: int
    """The seq of the edit that made it: events after it are matched with it."""
    died: int = NEVER
    score: float = 0.0
    weights: dict[str, float] = {}
    expires: int = 0

    def lives_at(self, seq: int) -> bool:
        """Whether an event of this seq is matched with it."""
        return self.born < seq < self.died


@dataclass(slots=True, eq=False)
class SpaceEntry:
    """A space and its subscriptions."""

    tenant: str
    name: str
    number: int
    space: Space
    since: int
    live: dict[str, Version] = field(default_factory=dict)
    next_number: int = 0
    expiring: dict[str, int] = field(init=False)
    """When those that end by themselves do, by id."""

    def __post_init__(self) -> None:
        self.expiring = {name: one.expires for name, one in self.live.items() if one.expires}


class Letter(msgspec.Struct, array_like=True):
    """A dead letter: a message that couldn't be delivered."""

    seq: int
    reason: str
    at: int
    """When it was given up, in microseconds since 1970."""


@dataclass(slots=True, eq=False)
class Consumer:
    """Who gets messages: a cursor in the log, and subscriptions."""

    tenant: str
    name: str
    number: int
    space: SpaceEntry
    since: int
    cursor: int
    """All up to this seq has been acknowledged."""
    out: dict[str, Any] = field(default_factory=dict)
    on_gap: str = "tell"
    best: int = 0
    """A message has at most so many subscriptions, those of the highest scores; 0: all."""
    now_from: int = 0
    """Events before this seq are matched with the subscriptions that lived at it."""
    versions: list[Version] = field(default_factory=list)
    """All that it has had, as far as the log still has events for them; by birth."""
    stopped: str = ""
    """Why its way out delivers no more."""
    letters: dict[int, Letter] = field(default_factory=dict)
    """The messages that its way out couldn't deliver, by seq."""
    moved: int = 0
    """The seq of the edit that made it, or moved its cursor elsewhere."""

    @property
    def key(self) -> str:
        """Its name in the log's acknowledgements."""
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, slots=True)
class Token:
    """What somebody who knows a secret may do."""

    tenant: str
    digest: str
    label: str
    scopes: tuple[str, ...]
    expires: int
    since: int


@dataclass(slots=True)
class Change:
    """What an edit means for the index of a space."""

    entry: SpaceEntry
    old: Version | None = None
    new: Version | None = None
    filter: Filter | None = None
    """Of the new version, if it was parsed already."""
    space: Space | None = None
    """The space itself has changed: all is made anew."""


class Registry:
    """All that has a name. Only the committer changes it; anybody may look."""

    def __init__(self) -> None:
        self.spaces: dict[Name, SpaceEntry] = {}
        self.consumers: dict[Name, Consumer] = {}
        self.tokens: dict[str, Token] = {}
        self.tenants: dict[str, dict[str, int]] = {}
        self.numbered: list[Consumer | None] = []
        """Consumers by number."""
        self.counts: dict[str, int] = {}
        """Live subscriptions by tenant."""
        self.space_count = 0
        self.had_token = False
        """Whether a token was ever made: from then on one is needed."""

    # ---- looking

    def space(self, tenant: str, name: str) -> SpaceEntry:
        """Return a space; refuse a name that there isn't."""
        found = self.spaces.get((tenant, name))
        if found is None:
            mine = [one for owner, one in self.spaces if owner == tenant]
            raise RefusedError(404, f"no space {shown(name)}: {near(name, mine)}")
        return found

    def subscription(self, tenant: str, space: str, name: str) -> Version:
        """Return a subscription as it is."""
        found = self.space(tenant, space).live.get(name)
        if found is None:
            raise RefusedError(404, f"no subscription {shown(name)} in the space {shown(space)}")
        return found

    def consumer(self, tenant: str, name: str) -> Consumer:
        """Return a consumer."""
        found = self.consumers.get((tenant, name))
        if found is None:
            mine = [one for owner, one in self.consumers if owner == tenant]
            raise RefusedError(404, f"no consumer {shown(name)}: {near(name, mine)}")
        return found

    def owner(self, version: Version) -> Consumer | None:
        """Return the consumer of a subscription."""
        return None if version.consumer == NOBODY else self.numbered[version.consumer]

    # ---- carrying out

    def apply(self, edit: AnyEdit, seq: int) -> Iterator[Change]:
        """Carry out an edit that is in the log; yield what it means for indexes."""
        match edit:
            case PutSubscription():
                entry = self.spaces[edit.tenant, edit.space]
                owner = self.consumers.get((edit.tenant, edit.consumer))
                yield self._subscribe(entry, edit, owner, seq)
            case DeleteSubscription():
                entry = self.spaces[edit.tenant, edit.space]
                yield self._unsubscribe(entry, entry.live[edit.name], seq)
            case PutSpace():
                yield from self._put_space(edit, seq)
            case PutConsumer():
                self._put_consumer(edit, seq)
            case DeleteConsumer():
                gone = self.consumers.pop((edit.tenant, edit.name))
                for version in [one for one in gone.versions if one.died == NEVER]:
                    yield self._unsubscribe(gone.space, version, seq)
                self.numbered[gone.number] = None
            case StopConsumer():
                self.consumers[edit.tenant, edit.name].stopped = edit.reason
            case AddLetters():
                owner = self.consumers[edit.tenant, edit.name]
                owner.letters |= {one: Letter(one, edit.reason, edit.at) for one in edit.seqs}
                owner.cursor = max(owner.cursor, *edit.seqs)
            case DropLetters():
                for one in edit.seqs:
                    self.consumers[edit.tenant, edit.name].letters.pop(one, None)
            case PutToken():
                given = edit.tenant, edit.name, edit.label, tuple(edit.scopes), edit.expires
                self.tokens[edit.name] = Token(*given, seq)
                self.had_token = True
            case DeleteToken():
                del self.tokens[edit.name]
            case PutTenant():
                self.tenants[edit.name] = dict(edit.limits)

    def _subscribe(
        self, entry: SpaceEntry, edit: PutSubscription, owner: Consumer | None, seq: int
    ) -> Change:
        old = entry.live.get(edit.name)
        if old is None:
            number = entry.next_number
            entry.next_number += 1
            self.counts[entry.tenant] = self.counts.get(entry.tenant, 0) + 1
        else:
            number, old.died = old.number, seq
        new = Version(
            number,
            edit.name,
            edit.filter,
            NOBODY if owner is None else owner.number,
            seq,
            NEVER,
            edit.score,
            edit.weights,
            edit.expires,
        )
        entry.live[edit.name] = new
        entry.expiring.pop(edit.name, None)
        if edit.expires:
            entry.expiring[edit.name] = edit.expires
        if owner is not None:
            owner.versions.append(new)
        return Change(entry, old, new)

    def _unsubscribe(self, entry: SpaceEntry, version: Version, seq: int) -> Change:
        version.died = seq
        del entry.live[version.id]
        entry.expiring.pop(version.id, None)
        self.counts[entry.tenant] -= 1
        return Change(entry, version)

    def _put_space(self, edit: PutSpace, seq: int) -> Iterator[Change]:
        old = self.spaces.get((edit.tenant, edit.name))
        if old is None:
            space = Space.from_definition(edit.definition)
            made = SpaceEntry(edit.tenant, edit.name, self.space_count, space, seq)
            self.spaces[edit.tenant, edit.name] = made
            self.space_count += 1
            yield Change(made, space=space)
        elif old.space.definition() != edit.definition:
            words = old.space.vocabularies
            old.space, old.since = Space.from_definition(edit.definition, words), seq
            yield Change(old, space=old.space)

    def _put_consumer(self, edit: PutConsumer, seq: int) -> None:
        old = self.consumers.get((edit.tenant, edit.name))
        if old is not None:
            old.out, old.on_gap, old.since, old.stopped = edit.out, edit.on_gap, seq, ""
            old.best = edit.best
            if edit.start >= 0:
                old.cursor, old.now_from = edit.start, seq if edit.as_now else 0
                old.moved = seq
            return
        made = Consumer(
            edit.tenant,
            edit.name,
            len(self.numbered),
            self.spaces[edit.tenant, edit.space],
            seq,
            seq if edit.start < 0 else edit.start,
            edit.out,
            edit.on_gap,
            edit.best,
            moved=seq,
        )
        self.consumers[edit.tenant, edit.name] = made
        self.numbered.append(made)

    def forget(self, first: int) -> None:
        """Drop versions that no event of the log from this seq on can match."""
        for consumer in list(self.consumers.values()):
            consumer.versions = [one for one in consumer.versions if one.died > first]


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
