"""Delivery policies as options of commands."""

from __future__ import annotations

from typing import Any

from rangecast.errors import UsageError

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def policy_of(
    deduplicate: str | None, throttle: str | None, renotify: str | None, digest: str | None
) -> dict[str, Any]:
    """Return the options that are given, as a policy has them."""
    policy = {
        "deduplicate": deduplicate,
        "renotify": renotify,
        "throttle": None if throttle is None else _throttle(throttle),
        "digest": None if digest is None else _digest(digest),
    }
    return {option: value for option, value in policy.items() if value}


def _throttle(text: str) -> list[Any]:
    """Return a text such as '3 per 1 h' as a policy has it."""
    number, _, period = text.partition(" per ")
    if not number.strip().isdecimal() or not period:
        raise UsageError(f"--throttle must have the form '3 per 1 h'; given: {text!r}")
    return [int(number), period]


def _digest(text: str) -> dict[str, Any]:
    """Parse a digest: a count, or a time with days and zone ('08:00 Mon-Fri Europe/Berlin')."""
    if text.isdecimal():
        return {"count": int(text)}
    at, *others = text.split()
    days = {"days": others.pop(0)} if others and others[0][:3] in _DAYS else {}
    return {"at": at} | days | ({"zone": " ".join(others)} if others else {})
