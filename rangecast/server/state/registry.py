"""Registry of spaces, boards, subscriptions, consumers, tokens and tenants, derived from the log.

`Registry.apply` applies written edits (`admission` has checked them before); it can't fail, and is
deterministic. It returns the effect on the index of a space as a `Change`, which the matcher
applies before it matches an event with a larger seq.

A subscription keeps its *number* while it lives; each of its filters is a *version*, which is kept
while the log has an event that it could have matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rangecast.errors import RangecastError, UnknownIdError, abbreviate, did_you_mean
from rangecast.model.space import Space
from rangecast.server.state.boards import BoardEntry, Interest, InterestChange, interest_of
from rangecast.server.state.edits import (
    NEVER,
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
from rangecast.server.state.entries import (
    NO_WEIGHTS,
    AnyChange,
    Change,
    Consumer,
    ConsumerPolicy,
    DeadLetter,
    Epoch,
    Read,
    SpaceEntry,
    Token,
)
from rangecast.server.state.retained import RetainedBytes
from rangecast.server.state.versions.live import Origin
from rangecast.server.state.versions.version import NO_CONSUMER, Gone, Version

MAX_EPOCHS = 1_000
"""Epochs of the log that are remembered; positions of older ones count as lost."""

Name = tuple[str, str]
"""Registry key: (tenant, name)."""


class RequestError(RangecastError):
    """A request that cannot be fulfilled, with its HTTP status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class Registry:
    """All named entities. Only the committer changes it; any thread may read."""

    def __init__(self) -> None:
        self.spaces: dict[Name, SpaceEntry] = {}
        self.boards: dict[Name, BoardEntry] = {}
        self.consumers: dict[Name, Consumer] = {}
        self.tokens: dict[str, Token] = {}
        self.tenants: dict[str, dict[str, int]] = {}
        self.numbered: list[Consumer | None] = []
        """Consumers by number."""
        self.counts: dict[str, int] = {}
        """Live subscriptions and interests by tenant."""
        self.retained = RetainedBytes()
        self.space_count = 0
        self.broker: PutBroker | None = None
        """Identity under which this server last talked to its neighbours."""
        self.epochs: tuple[Epoch, ...] = ()
        """Epochs of the log, the oldest first; empty while it has only had its first one."""
        self.had_token = False
        """Whether a token was ever created: from then on one is required."""
        self.token_version = 0
        """Changes whenever a token is made or ended."""

    # ---- looking

    def space(self, tenant: str, name: str) -> SpaceEntry:
        """Return a space; reject an unknown name."""
        entry = self.spaces.get((tenant, name))
        if entry is None:
            mine = [known for owner, known in list(self.spaces) if owner == tenant]
            raise RequestError(404, f"no space {abbreviate(name)}: {did_you_mean(name, mine)}")
        return entry

    def subscription(self, tenant: str, space: str, name: str) -> Version:
        """Return the current version of a subscription."""
        subscription = self.space(tenant, space).live.get(name)
        if subscription is None:
            raise UnknownIdError(
                f"no subscription {abbreviate(name)} in the space {abbreviate(space)}"
            )
        return subscription

    def board(self, tenant: str, name: str) -> BoardEntry:
        """Return a board; reject an unknown name."""
        if (entry := self.boards.get((tenant, name))) is None:
            mine = [known for owner, known in list(self.boards) if owner == tenant]
            raise RequestError(404, f"no board {abbreviate(name)}: {did_you_mean(name, mine)}")
        return entry

    def interest(self, tenant: str, board: str, name: str) -> Interest:
        """Return the current version of an interest."""
        if (interest := self.board(tenant, board).live.get(name)) is None:
            raise UnknownIdError(f"no interest {abbreviate(name)} on the board {abbreviate(board)}")
        return interest

    def consumer(self, tenant: str, name: str) -> Consumer:
        """Return a consumer."""
        if (consumer := self.consumers.get((tenant, name))) is None:
            mine = [known for owner, known in list(self.consumers) if owner == tenant]
            raise RequestError(404, f"no consumer {abbreviate(name)}: {did_you_mean(name, mine)}")
        return consumer

    def owner(self, version: Version | Origin | Interest) -> Consumer | None:
        """Return the consumer of a subscription or interest."""
        return None if version.consumer == NO_CONSUMER else self.numbered[version.consumer]

    # ---- carrying out

    def apply(self, edits: Sequence[AnyEdit], first: int, read: Read = None) -> Iterator[AnyChange]:
        """Apply edits of the log, starting at this seq; yield the changes of indexes.

        `read`: the parsed filters, if the edits are a run and are parsed already.
        """
        if isinstance(edits, PutRun):
            yield self._subscribe(edits, first, read)
        else:
            for seq, edit in enumerate(edits, first):
                yield from self._apply(edit, seq)

    def _apply(self, edit: AnyEdit, seq: int) -> Iterator[AnyChange]:
        match edit:
            case PutSubscription():
                yield self._subscribe([edit], seq)
            case DeleteSubscription():
                entry = self.spaces[edit.tenant, edit.space]
                yield self._unsubscribe(entry, edit.name, seq)
            case PutSpace():
                yield from self._put_space(edit, seq)
            case PutConsumer():
                yield from self._put_consumer(edit, seq)
            case DeleteConsumer():
                yield from self._delete_consumer(edit, seq)
            case StopConsumer():
                owner = self.consumers[edit.tenant, edit.name]
                if edit.since in (0, owner.since):
                    owner.stopped = edit.reason
            case AddDeadLetters():
                owner = self.consumers[edit.tenant, edit.name]
                if edit.moved in (0, owner.moved):
                    owner.dead_letters |= {
                        number: DeadLetter(number, edit.reason, edit.at) for number in edit.seqs
                    }
                    owner.cursor = max(owner.cursor, *edit.seqs)
            case DropDeadLetters():
                for number in edit.seqs:
                    self.consumers[edit.tenant, edit.name].dead_letters.pop(number, None)
            case PutBoard() | DeleteBoard() | PutInterest() | DeleteInterest():
                yield from self._edit_board(edit, seq)
            case PutToken():
                token = edit.tenant, edit.name, edit.label, tuple(edit.scopes), edit.expires
                self.tokens[edit.name] = Token(*token, seq)
                self.had_token = True
                self.token_version += 1
            case DeleteToken():
                del self.tokens[edit.name]
                self.token_version += 1
            case PutTenant():
                self.tenants[edit.name] = dict(edit.limits)
            case AdvanceTracks():
                yield Change(self.spaces[edit.tenant, edit.name], moment=edit.moment)
            case PutBroker():
                self.broker = edit
            case BeginEpoch():
                before = self.epochs or (Epoch(edit.before, 1, 1, ""),)
                new = Epoch(edit.name, seq, edit.number, edit.chain)
                self.epochs = (*before, new)[-MAX_EPOCHS:]

    def _delete_consumer(self, edit: DeleteConsumer, seq: int) -> Iterator[AnyChange]:
        gone = self.consumers.pop((edit.tenant, edit.name))
        for version in gone.versions:
            if version.died == NEVER:
                assert isinstance(gone.source, SpaceEntry)
                yield self._unsubscribe(gone.source, version.name, seq)
        gone.versions.forget(seq)
        for interest in [live for live in gone.interests if live.died == NEVER]:
            assert isinstance(gone.source, BoardEntry)
            yield self._end_interest(gone.source, interest, seq)
        self.numbered[gone.number] = None
        if isinstance(gone.source, SpaceEntry) and gone.source.track is not None:
            policy = ConsumerPolicy(gone.number, gone.name, None, is_deleted=True)
            yield Change(gone.source, policy=policy)

    def _edit_board(
        self, edit: PutBoard | DeleteBoard | PutInterest | DeleteInterest, seq: int
    ) -> Iterator[InterestChange]:
        match edit:
            case PutBoard():
                if (edit.tenant, edit.name) in self.boards:
                    return  # put again, with the same options
                made = BoardEntry(edit, seq)
                self.boards[edit.tenant, edit.name] = made
                yield InterestChange(made, seq)
            case DeleteBoard():
                gone = self.boards.pop((edit.tenant, edit.name))
                self.counts[edit.tenant] = self.counts.get(edit.tenant, 0) - len(gone.live)
                yield InterestChange(gone, seq, is_deleted=True)
            case PutInterest():
                entry = self.boards[edit.tenant, edit.board]
                owner = self.consumers.get((edit.tenant, edit.consumer))
                old = entry.live.get(edit.name)
                if old is None:
                    self.counts[edit.tenant] = self.counts.get(edit.tenant, 0) + 1
                else:
                    old.died = seq
                new = interest_of(edit, NO_CONSUMER if owner is None else owner.number, seq)
                entry.live[edit.name] = new
                if owner is not None:
                    owner.interests.append(new)
                yield InterestChange(entry, seq, old, new)
            case DeleteInterest():
                entry = self.boards[edit.tenant, edit.board]
                yield self._end_interest(entry, entry.live[edit.name], seq)

    def _end_interest(self, entry: BoardEntry, interest: Interest, seq: int) -> InterestChange:
        interest.died = seq
        del entry.live[interest.name]
        self.counts[entry.tenant] -= 1
        return InterestChange(entry, seq, interest)

    def _subscribe(self, edits: Sequence[PutSubscription], first: int, read: Read = None) -> Change:
        """Put subscriptions of one space."""
        tenant, entry = edits[0].tenant, self.spaces[edits[0].tenant, edits[0].space]
        consumers = {
            consumer: self.consumers.get((tenant, consumer))
            for consumer in {e.consumer for e in edits}
        }
        live, expiring, first_number = entry.live, entry.expiring, entry.next_number
        put: list[Version] = []
        for seq, edit in enumerate(edits, first):
            old, owner = live.number(edit.name), consumers[edit.consumer]
            number, before = (entry.next_number, -1) if old is None else (old, live.place(old))
            former = NO_CONSUMER if old is None else live.consumer(old)
            new = Version(
                number,
                edit.name,
                edit.filter,
                NO_CONSUMER if owner is None else owner.number,
                seq,
                NEVER,
                edit.score,
                edit.weights or NO_WEIGHTS,
                edit.expires,
                edit.is_integer,
                edit.track,
            )
            place = live.add(new)
            if old is None:
                entry.next_number += 1
            else:
                self._end(entry, former, before, seq)
            put.append(new)
            if edit.expires:
                expiring[edit.name] = edit.expires
            elif old is not None:
                expiring.pop(edit.name, None)
            if owner is not None:
                owner.versions.append(place, seq)
        self.counts[tenant] = self.counts.get(tenant, 0) + entry.next_number - first_number
        return Change(entry, put, read=read)

    def _unsubscribe(self, entry: SpaceEntry, name: str, seq: int) -> Change:
        live = entry.live
        number = live.number(name)
        assert number is not None
        place = live.place(number)
        live.remove(name)
        self._end(entry, live.consumer(number), place, seq)
        entry.expiring.pop(name, None)
        self.counts[entry.tenant] -= 1
        return Change(entry, gone=Gone(number, name, seq))

    def _end(self, entry: SpaceEntry, consumer: int, place: int, seq: int) -> None:
        """End a version: its consumer keeps it while the log has events for it."""
        owner = None if consumer == NO_CONSUMER else self.numbered[consumer]
        if owner is None:
            entry.live.release(place)
        else:
            owner.versions.end(place, seq)

    def _put_space(self, edit: PutSpace, seq: int) -> Iterator[Change]:
        old = self.spaces.get((edit.tenant, edit.name))
        if old is None:
            space = Space.from_definition(edit.definition)
            old = SpaceEntry(edit.tenant, edit.name, self.space_count, space, seq)
            self.spaces[edit.tenant, edit.name] = old
            self.space_count += 1
            yield Change(old, space=space)
        elif old.space.definition() != edit.definition:
            words = old.space.vocabularies
            old.space, old.since = Space.from_definition(edit.definition, words), seq
            yield Change(old, space=old.space)
        if edit.track is not None and edit.track != old.track:
            old.track = edit.track
            yield Change(old, track=edit.track)

    def _put_consumer(self, edit: PutConsumer, seq: int) -> Iterator[Change]:
        consumer = self.consumers.get((edit.tenant, edit.name))
        before = None if consumer is None else consumer.policy
        if consumer is not None:
            consumer.delivery, consumer.on_gap, consumer.since = edit.delivery, edit.on_gap, seq
            consumer.stopped, consumer.policy = "", edit.policy
            consumer.max_per_event = edit.max_per_event
            consumer.max_per_second = edit.max_per_second
            if edit.start >= 0:
                consumer.cursor, consumer.moved = edit.start, seq
                consumer.now_from = seq if edit.current_subscriptions else 0
        else:
            source = (self.spaces, edit.space) if not edit.board else (self.boards, edit.board)
            consumer = Consumer(
                edit.tenant,
                edit.name,
                len(self.numbered),
                source[0][edit.tenant, source[1]],
                seq,
                seq if edit.start < 0 else edit.start,
                edit.delivery,
                edit.on_gap,
                edit.max_per_event,
                moved=seq,
                max_per_second=edit.max_per_second,
                policy=edit.policy,
            )
            self.consumers[edit.tenant, edit.name] = consumer
            self.numbered.append(consumer)
        if edit.policy != before and isinstance(consumer.source, SpaceEntry):
            policy = ConsumerPolicy(consumer.number, consumer.name, edit.policy)
            yield Change(consumer.source, policy=policy)

    def forget(self, first: int) -> None:
        """Drop versions that only the log before this seq needs."""
        self.retained.forget(first)
        self.epochs = self.epochs[sum(epoch.first < first for epoch in self.epochs[1:]) :]
        for consumer in list(self.consumers.values()):
            consumer.versions.forget(first)
            consumer.interests = [
                interest for interest in consumer.interests if interest.died > first
            ]
