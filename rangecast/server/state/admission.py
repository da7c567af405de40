"""Check edits before they are written: against the state, and against earlier edits of the same
group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from rangecast.errors import DuplicateIdError, RangecastError, UnknownIdError, abbreviate
from rangecast.model.space import Space
from rangecast.server.state.boards import (
    BoardEntry,
    Interest,
    ObjectChange,
    PlacedObject,
    board_label,
    check_board,
    check_object,
    checked_change,
)
from rangecast.server.state.edits import (
    AddDeadLetters,
    AdvanceTracks,
    AnyEdit,
    BeginEpoch,
    DeleteBoard,
    DeleteConsumer,
    DeleteInterest,
    DeleteSubscription,
    DeleteToken,
    DropDeadLetters,
    PutBoard,
    PutBroker,
    PutConsumer,
    PutInterest,
    PutRun,
    PutSpace,
    PutSubscription,
    PutTenant,
    PutToken,
    StopConsumer,
)
from rangecast.server.state.registry import Name, Registry, RequestError
from rangecast.server.state.versions.live import Origin

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
ONLY_NEW = "new"
"""Instead of an ETag: there must be none."""
_ABSENT = object()
Conditions = str | Sequence[str] | None
"""ETags that subscriptions must have before an edit: one for all of them, or one for each."""


class ConsumerExistsError(RequestError):
    """A consumer that had to be new was created by another request in the meantime."""


class ChangedError(RequestError):
    """A precondition failed: the subscription has changed."""


class Admission:
    """Checks the edits of a group, in order, against the state and the edits before them."""

    def __init__(self, registry: Registry, seq: int):
        self.seq = seq
        """The next edit's."""
        self._registry = registry
        self._subscriptions: dict[tuple[str, str, str], tuple[int, str] | None] = {}
        """Subscriptions of this group: the seq of the edit, and the consumer; `None`: removed."""
        self._consumers: dict[Name, str | None] = {}
        self._ended: dict[Name, bool] = {}
        """Consumers that this group deletes, even if it creates them again."""
        self._webhooks: dict[Name, bool] = {}
        self._spaces: dict[Name, Space] = {}
        self._tracks: dict[Name, dict[str, Any]] = {}
        self._boards: dict[Name, PutBoard | None] = {}
        self._objects: dict[tuple[BoardEntry, str], PlacedObject | None] = {}
        self._tokens: dict[str, bool] = {}
        self._counts: dict[str, int] = {}
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []
        self._inserted = 0

    def check_all(
        self,
        edits: Sequence[AnyEdit],
        if_match: Conditions = None,
        board: BoardEntry | None = None,
    ) -> int:
        """Add edits to the group; if one can't be applied, reject all of them.

        Return how many subscriptions and interests are new. `board`: that of interests.
        """
        if board is not None:
            self._need_same_board(board)
        self._journal.clear()
        self._inserted = 0
        before, counts = self.seq, dict(self._counts)
        try:
            if isinstance(edits, PutRun):
                self._check_subscriptions(edits, if_match)
                self.seq += len(edits)
            else:
                for edit in edits:
                    self._check(edit, if_match)
                    self.seq += 1
        except RangecastError:
            self.seq, self._counts = before, counts
            self._undo()
            raise
        return self._inserted

    def _undo(self) -> None:
        for table, key, old in reversed(self._journal):
            if old is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = old

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._journal.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def _check(self, edit: AnyEdit, if_match: Conditions) -> None:
        assert if_match is None or isinstance(if_match, str)  # only a run has one for each
        match edit:
            case PutSubscription():
                self._check_subscriptions([edit], if_match)
            case DeleteSubscription():
                key = edit.tenant, edit.space, edit.name
                if key[:2] not in self._spaces:
                    self._registry.space(edit.tenant, edit.space)
                self._check_match(self._version(*key), edit.name, if_match)
                self._set(self._subscriptions, key, None)
                self._count(edit.tenant, -1)
            case PutInterest():
                self._need_board((edit.tenant, edit.board))
                self._check_puts(board_label(edit.board), [edit], if_match)
            case DeleteInterest():
                self._need_board((edit.tenant, edit.board))
                key = edit.tenant, board_label(edit.board), edit.name
                self._check_match(self._version(*key), edit.name, if_match, "interest")
                self._set(self._subscriptions, key, None)
                self._count(edit.tenant, -1)
            case PutBoard() | DeleteBoard():
                self._check_board(edit)
            case PutSpace():
                self._check_space(edit)
            case PutConsumer():
                self._check_consumer(edit)
            case DeleteConsumer():
                self._remove_consumer(edit)
            case StopConsumer() | AddDeadLetters() | DropDeadLetters():
                self._need_consumer((edit.tenant, edit.name))
            case DeleteToken():
                if not self._tokens.get(edit.name, edit.name in self._registry.tokens):
                    raise RequestError(404, "no such token")
                self._set(self._tokens, edit.name, False)
            case PutToken():
                self._set(self._tokens, edit.name, True)
            case PutTenant() | PutBroker() | BeginEpoch() | AdvanceTracks():
                pass

    def _check_subscriptions(self, edits: Sequence[PutSubscription], if_match: Conditions) -> None:
        """Check puts of subscriptions of one space, each with a different id."""
        tenant, space = edits[0].tenant, edits[0].space
        if (tenant, space) not in self._spaces:
            self._registry.space(tenant, space)
        if any(edit.track is not None for edit in edits):
            self._check_tracked(tenant, space, edits)
        self._check_puts(space, edits, if_match)

    def _check_tracked(self, tenant: str, space: str, edits: Sequence[PutSubscription]) -> None:
        """Reject tracked subscriptions of a space without tracks, or without a consumer."""
        self._need_track(tenant, space)
        for edit in edits:
            if edit.track is not None and not edit.consumer:
                raise RequestError(
                    422,
                    f"the subscription {abbreviate(edit.name)} has a track, but no consumer\n"
                    "  hint: give it a consumer for its transitions",
                )

    def _need_track(self, tenant: str, space: str) -> None:
        """Reject a space without tracks."""
        if self._track(tenant, space) is None:
            raise RequestError(
                409,
                f"the space {abbreviate(space)} doesn't track objects\n"
                '  hint: create it with "track": {"key": ..., "time": ...}',
            )

    def _track(self, tenant: str, space: str) -> dict[str, Any] | None:
        """Return the track settings of a space."""
        entry = self._registry.spaces.get((tenant, space))
        return self._tracks.get((tenant, space), None if entry is None else entry.track)

    def _check_puts(
        self, label: str, edits: Sequence[PutSubscription | PutInterest], if_match: Conditions
    ) -> None:
        """Check puts of subscriptions or interests under one label, each with a different id."""
        tenant, noun = edits[0].tenant, "interest" if "/" in label else "subscription"
        for consumer in dict.fromkeys([put.consumer for put in edits]):
            other = self._need_consumer((tenant, consumer)) if consumer else label
            if other != label:
                raise RequestError(
                    409,
                    f"the consumer {abbreviate(consumer)} is of {_in_words(other)}, the {noun} of "
                    f"{_in_words(label)}\n  hint: create a consumer for each",
                )
        keys = [(tenant, label, put.name) for put in edits]
        olds = self._versions(tenant, label, keys)
        if if_match is not None:
            conditions = [if_match] * len(edits) if isinstance(if_match, str) else if_match
            for edit, old, condition in zip(edits, olds, conditions, strict=True):
                self._check_condition(old, edit.name, condition, noun)
        if more := olds.count(None):
            self._check_count(tenant, more)
            self._inserted += more
        for seq, (key, edit) in enumerate(zip(keys, edits, strict=True), self.seq):
            self._set(self._subscriptions, key, (seq, edit.consumer))

    def _check_condition(self, old: int | None, name: str, if_match: str, noun: str) -> None:
        if if_match != ONLY_NEW:
            self._check_match(old, name, if_match, noun)
        elif old is not None:
            raise DuplicateIdError(
                f"the {noun} {abbreviate(name)} already exists\n"
                "  hint: choose another id, or replace it"
            )

    def _check_count(self, tenant: str, more: int) -> None:
        count = self._registry.counts.get(tenant, 0) + self._counts.get(tenant, 0)
        _check_limit("subscriptions", self._registry.tenants.get(tenant, {}), count, more)
        self._count(tenant, more)

    def _count(self, tenant: str, change: int) -> None:
        self._counts[tenant] = self._counts.get(tenant, 0) + change

    def _check_match(
        self, old: int | None, name: str, if_match: str | None, noun: str = "subscription"
    ) -> None:
        if old is None:
            raise UnknownIdError(f"no {noun} {abbreviate(name)}")
        if if_match is not None and if_match.strip('"') not in (str(old), "*"):
            raise ChangedError(
                412,
                f"the {noun} {abbreviate(name)} has changed: If-Match is {if_match}, "
                f'its ETag is "{old}"',
            )

    def _version(self, tenant: str, label: str, name: str) -> int | None:
        """Return the seq of the edit that put a subscription or an interest, if it exists."""
        return self._versions(tenant, label, [(tenant, label, name)])[0]

    def _versions(
        self, tenant: str, label: str, keys: Sequence[tuple[str, str, str]]
    ) -> list[int | None]:
        """Return the seqs of the edits that put these keys; `None` for missing ones."""
        origin, mine = self._origins(tenant, label), self._subscriptions
        versions: list[int | None] = []
        for key in keys:
            if key in mine:
                put = mine[key]
                versions.append(None if put is None else put[0])
                continue
            old = origin(key[2])
            if old is not None and self._ended:
                owner = self._registry.owner(old)
                if owner is not None and (tenant, owner.name) in self._ended:
                    old = None  # gone with its consumer, earlier in this group
            versions.append(None if old is None else old.born)
        return versions

    def _origins(self, tenant: str, label: str) -> Callable[[str], Origin | Interest | None]:
        """Return a lookup of subscriptions or interests as of the start of this group."""
        space = self._registry.spaces.get((tenant, label))
        if space is not None:
            return space.live.origin
        board_name = tenant, label.partition("/")[2]
        board = self._registry.boards.get(board_name)
        if board is None or board_name in self._boards:
            return lambda _: None  # another board of this name would be a new one
        return board.live.get

    def _need_board(self, name: Name) -> None:
        if name not in self._boards:
            self._registry.board(*name)
        elif self._boards[name] is None:
            raise RequestError(404, f"no board {abbreviate(name[1])}")

    def _need_same_board(self, entry: BoardEntry) -> None:
        """Reject a board that was deleted, even if there is another one of its name."""
        key = entry.tenant, entry.name
        self._need_board(key)
        if key in self._boards or self._registry.boards.get(key) is not entry:
            raise RequestError(
                404, f"the board {abbreviate(entry.name)} was deleted in the meantime"
            )

    def _check_board(self, edit: PutBoard | DeleteBoard) -> None:
        key = edit.tenant, edit.name
        if isinstance(edit, DeleteBoard):
            self._need_board(key)
            label = board_label(edit.name)
            for name in [*self._registry.consumers, *self._consumers]:
                if name[0] == edit.tenant and self._consumer_space(name) == label:
                    raise RequestError(
                        409,
                        f"the consumer {abbreviate(name[1])} is of the board "
                        f"{abbreviate(edit.name)}\n"
                        "  hint: delete its consumers first",
                    )
            self._set(self._boards, key, None)
            self._end_subscriptions(lambda name, _: name[:2] == (edit.tenant, label))
            return
        check_name("board", edit.name)
        before = self._registry.boards.get(key)
        old = self._boards.get(key, None if before is None else before.made)
        if old is not None and old != edit:
            raise RequestError(
                409,
                f"the board {abbreviate(edit.name)} already exists with other options\n"
                "  hint: delete it first, or choose another name",
            )
        check_board(edit)
        if old is None:  # otherwise its interests stay
            self._set(self._boards, key, edit)

    def updates(
        self,
        entry: BoardEntry,
        changes: Sequence[tuple[int, ObjectChange]],
        *,
        all_or_none: bool,
        only: str = "",
    ) -> tuple[list[ObjectChange], list[tuple[int, RangecastError]]]:
        """Add changes of a board's objects to the group.

        Return the accepted changes, and the row and error of each rejected one.

        only   `new` or `existing`: required of all objects
        """
        self._need_same_board(entry)
        self._journal.clear()
        object_changes: list[ObjectChange] = []
        rejected: list[tuple[int, RangecastError]] = []
        for row, change in changes:
            key = entry, change.name
            old = self._objects[key] if key in self._objects else entry.objects.get(change.name)
            try:
                check_object(change.id, only, exists=old is not None)
                new = checked_change(change, old, entry.space, self.seq + len(object_changes))
            except RangecastError as error:
                rejected.append((row, error))
                continue
            self._set(self._objects, key, new)
            object_changes.append(change)
        if rejected and all_or_none:
            self._undo()
            return [], rejected
        self.seq += len(object_changes)
        return object_changes, rejected

    def _consumer_space(self, name: Name) -> str | None:
        """Return the label of a consumer's space or board; `None` if the consumer is unknown."""
        if name in self._consumers:
            return self._consumers[name]
        consumer = self._registry.consumers.get(name)
        return None if consumer is None else consumer.source.label

    def _need_consumer(self, name: Name) -> str:
        """Return the label of a consumer's space or board; reject an unknown name."""
        space = self._consumer_space(name)
        if space is None:
            self._registry.consumer(*name)
            raise RequestError(404, f"no consumer {abbreviate(name[1])}")
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
        track = self._track(*key)
        if edit.track is not None and track is not None and edit.track != track:
            raise RequestError(
                409,
                f"the objects of the space {abbreviate(edit.name)} are already tracked with other "
                "options\n  hint: leave track out, or create another space",
            )
        if edit.track is not None:
            self._set(self._tracks, key, edit.track)

    def _check_consumer(self, edit: PutConsumer) -> None:
        key = edit.tenant, edit.name
        check_name("consumer", edit.name)
        label = board_label(edit.board) if edit.board else edit.space
        if edit.board:
            self._need_board((edit.tenant, edit.board))
        elif (edit.tenant, edit.space) not in self._spaces:
            self._registry.space(edit.tenant, edit.space)
        if edit.policy is not None:
            self._need_track(edit.tenant, edit.space)
        old = self._consumer_space(key)
        if old is not None and old != label:
            raise RequestError(
                409,
                f"the consumer {abbreviate(edit.name)} exists, of {_in_words(old)}\n"
                "  hint: delete it first, or choose another name",
            )
        if old is not None and edit.only_new:
            raise ConsumerExistsError(409, f"the consumer {abbreviate(edit.name)} already exists")
        self._set(self._consumers, key, label)
        self._set(self._webhooks, key, edit.delivery.get("kind") == "webhook")
        if limits := self._registry.tenants.get(edit.tenant):
            self._check_consumer_counts(edit, limits, is_new=old is None)

    def _check_consumer_counts(
        self, edit: PutConsumer, limits: dict[str, int], *, is_new: bool
    ) -> None:
        before = self._registry.consumers
        names = {name for name in [*before, *self._consumers] if name[0] == edit.tenant}
        names = {name for name in names if self._consumer_space(name) is not None}
        if is_new:
            _check_limit("consumers", limits, len(names) - 1)
        if edit.delivery.get("kind") == "webhook":
            webhooks = sum(
                self._webhooks.get(
                    consumer,
                    consumer in before and before[consumer].delivery.get("kind") == "webhook",
                )
                for consumer in names
            )
            _check_limit("webhooks", limits, webhooks - 1)

    def _remove_consumer(self, edit: DeleteConsumer) -> None:
        key = edit.tenant, edit.name
        self._need_consumer(key)
        self._set(self._consumers, key, None)
        self._set(self._ended, key, True)
        self._end_subscriptions(lambda name, consumer: (name[0], consumer) == key)

    def _end_subscriptions(self, is_gone: Callable[[tuple[str, str, str], str], bool]) -> None:
        for name, put in [*self._subscriptions.items()]:
            if put is not None and is_gone(name, put[1]):
                self._set(self._subscriptions, name, None)


def _in_words(label: str) -> str:
    space, _, board = label.partition("/")
    return f"the board {abbreviate(board)}" if board else f"the space {abbreviate(space)}"


def _check_limit(name: str, limits: dict[str, int], count: int, more: int = 1) -> None:
    """Reject an edit that exceeds a limit."""
    if name in limits and count + more > limits[name]:
        wanted = f"; this would be {more:,} more" if more > 1 else ""
        raise RequestError(
            403,
            f"this tenant may have {limits[name]:,} {name} and has {count:,}{wanted}\n"
            "  hint: delete some, or request a higher limit",
        )


def check_name(noun: str, name: str) -> None:
    """Reject a name that isn't safe in a path or a log line."""
    if not NAME.fullmatch(name):
        raise RequestError(
            422,
            f"the name of a {noun} must consist of at most 128 letters, digits, '_', '.' and '-', "
            f"and start with a letter or digit\n  given: {abbreviate(name)}",
        )


def check_growth(old: Space, new: Space) -> None:
    """Reject a new space unless it only appends attributes or categories to the old one."""
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
        raise RequestError(
            409,
            f"the space exists and can't be changed to this one: {wrong}\n"
            "  hint: add attributes, or values of a category, at the end; or create another space",
        )
