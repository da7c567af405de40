"""Columns that the track kernels read and write."""

from __future__ import annotations

from typing import NamedTuple

from rangecast.kernels.arrays import I32, I64, U8


class Rules(NamedTuple):
    """Columns of rules. Row 0 is the default; the rows after it are the subscriptions' own."""

    subscriptions: I64
    confirm: I64
    dwell: I64
    first: I64
    second: I64


class Objects(NamedTuple):
    """Columns of objects, by slot."""

    last: I64
    """Time of the last event."""
    stamp: I64
    """Time of the last transition or event."""
    number: I32
    """Transitions at that time."""
    stay: I32
    """The first stay; -1: there is none."""


class Stays(NamedTuple):
    """Columns of stays."""

    subscription: I64
    """Number of arrival in the live set."""
    since: I64
    """Time of the event that began it."""
    left: I64
    """Time of the event that was outside, if the signal is off."""
    flags: U8
    next: I32
    """The next stay of the object, or the next free one."""


class Output(NamedTuple):
    """Columns of transitions."""

    slot: I64
    subscription: I64
    kind: I64
    reason: I64
    at: I64
    since: I64
    number: I64
    event: I64
    """Row of the event; -1: there is none."""


class MatchColumns(NamedTuple):
    """Matching subscriptions of each event, ascending.

    The subscriptions of event e are [offsets[e]:offsets[e + 1]].
    """

    offsets: I64
    subscription: I64
    flags: U8
