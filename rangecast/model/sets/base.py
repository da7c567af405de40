"""Common interface of all sets of subscriptions.

    created by (space, *, options)
    subscribe(id, filter)   unsubscribe(id)   replace(id, filter)   upsert(id, filter)
    and _many of each
    len(set)   id in set   iteration in order of arrival   set[id]   repr
    save(path)   Set.open(path)   pickle   copy

The return value of an edit depends on the set: the edits to advertise, or nothing. The `_many`
methods apply all edits or none. `upsert` subscribes new ids and replaces existing ones.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from rangecast.model.display import ROWS, brief, counted, html_table
from rangecast.model.sets.members import Id, Members
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_space

_MAX_LENGTH = 300
"""Characters of a filter that are shown."""


class Subscription(NamedTuple):
    """Subscription of a set, for display."""

    id: Id
    filter: str
    """A text that means the same as the filter that was given, as far as the set keeps it."""
    score: float = 0.0
    weights: Mapping[str, float] = MappingProxyType({})
    """By attribute; one that isn't there is 1."""

    def __repr__(self) -> str:
        score = f", score={self.score!r}" if self.score else ""
        weights = f", weights={brief(dict(self.weights), _MAX_LENGTH)}" if self.weights else ""
        shown = f"id={brief(self.id)}, filter={brief(self.filter, _MAX_LENGTH)}"
        return f"Subscription({shown}{score}{weights})"

    def _repr_html_(self) -> str:
        """Return the fields as a table, for notebooks."""
        rows = [("filter", self.filter), ("score", self.score), *self.weights.items()]
        return html_table(f"Subscription {brief(self.id)}", ("field", "value"), rows, len(rows))

    def __reduce__(self) -> tuple[type[Subscription], tuple[Id, str, float, dict[str, float]]]:
        return Subscription, (*self[:3], dict(self.weights))  # a mapping proxy can't be pickled


class UpsertResult(NamedTuple):
    """Outcome of `upsert_many`."""

    inserted: int
    """Number of subscriptions added."""
    replaced: int
    """Number of existing subscriptions replaced."""

    @classmethod
    def of(cls, rows: Sequence[int | None]) -> UpsertResult:
        """Count inserted and replaced ids, given their previous rows; `None` marks a new id."""
        inserted = rows.count(None)
        return cls(inserted, len(rows) - inserted)


class MemberSet:
    """Ordered set of ids."""

    _members: Members

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, subscription: object) -> bool:
        return subscription in self._members

    def __iter__(self) -> Iterator[Id]:
        """Iterate over the ids in order of arrival; a replaced id keeps its position."""
        return iter(self._members)


class SubscriptionSet(MemberSet):
    """Base class of the sets over a space; copies share nothing."""

    def __init__(self, space: Space, noun: str = "subscription"):
        from rangecast.kernels.progress import report_compiling  # clients load no kernels

        self.space = as_space(space)
        self._members = Members(noun)
        report_compiling()

    def __repr__(self) -> str:
        return f"<{self._summary_text()}>"

    def _repr_html_(self) -> str:
        """Return the first subscriptions as a table, for notebooks."""
        rows = (
            (subscription, item.filter if isinstance(item, Subscription) else item)
            for subscription in islice(self, ROWS)
            if subscription in self
            for item in [self[subscription]]
        )
        return html_table(self._summary_text(), ("id", self._members.noun), rows, len(self))

    def _summary_text(self) -> str:
        count = counted(len(self), self._members.noun)
        return f"{type(self).__name__}: {count} over {self.space}"

    def __getitem__(self, subscription: Id) -> Any:
        """Return a subscription by its id."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        """Return an independent copy over the same space."""
        memo: dict[int, Any] = {id(self.space): self.space}
        return copy.deepcopy(self, memo)
