"""Notifications: transitions that are delivered, one by one or in digests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa

from rangecast.model.sets.members import Id
from rangecast.track.transitions import COLUMNS, Transition


class Notification(NamedTuple):
    """Transitions that are delivered together: a single one, or a digest."""

    subscription: Id | None
    """`None`: a consumer's digest, of several subscriptions."""
    at: datetime
    """When it was due, in event time."""
    window: str | None
    """Window of a digest: its end in local time, or its number; an idempotency key with
    `subscription`, or with `consumer`."""
    transitions: tuple[Transition, ...]
    consumer: Id | None = None
    """Consumer whose digest it is."""

    @property
    def id(self) -> str:
        """Deterministic id: the same whenever this notification is derived again."""
        if self.window is None:
            return self.transitions[0].id
        owner = ("consumer", self.consumer) if self.subscription is None else (self.subscription,)
        data = repr((*owner, self.window)).encode(errors="backslashreplace")
        return blake2b(data, digest_size=16).hexdigest()


def table_of(notifications: Iterable[Notification]) -> pa.Table:
    """Return notifications as a table: one row per transition.

    A row has the columns of the transition, and the id and window of its notification.
    """
    rows = [
        (notification, transition)
        for notification in notifications
        for transition in notification.transitions
    ]
    transitions = [transition for _, transition in rows]
    columns: dict[str, pa.Array] = {}
    for name in COLUMNS:
        values = [getattr(transition, name) for transition in transitions]
        is_moment = name in ("at", "since")
        columns[name] = pa.array(values, pa.timestamp("us", "UTC") if is_moment else None)
    columns["notification"] = pa.array([notification.id for notification, _ in rows], pa.string())
    columns["window"] = pa.array([notification.window for notification, _ in rows], pa.string())
    return pa.table(columns)
