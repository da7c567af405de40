"""Status of a server, for its operator or for one tenant.

A tenant sees its own state, and what every response reveals anyway: epoch and seqs, which all
tenants share, and whether events can be published.
"""

from __future__ import annotations

import time
from typing import Any

from rangecast.server.core import Core
from rangecast.server.links.broker_runner import TENANT
from rangecast.server.service import Service


def listeners(core: Core, tenant: str | None) -> int:
    """Return the number of open listeners, of one tenant or of all."""
    listeners = (session for sessions in list(core.hub.listeners.values()) for session in sessions)
    return sum(tenant in (None, listener.consumer.tenant) for listener in listeners)


def subscriptions(core: Core, tenant: str | None) -> int:
    """Return the number of live subscriptions, of one tenant or of all.

    Session subscriptions of live tails aren't counted.
    """
    registry = core.registry
    spaces = [space for space in list(registry.spaces.values()) if tenant in (None, space.tenant)]
    tails = sum(
        consumer.versions.live_count
        for consumer in list(registry.consumers.values())
        if consumer.is_session and tenant in (None, consumer.tenant)
    )
    return sum(len(space.live) for space in spaces) - tails


def interests(core: Core, tenant: str | None) -> int:
    """Return the number of interests on boards, of one tenant or of all."""
    boards = list(core.registry.boards.values())
    return sum(len(board.live) for board in boards if tenant in (None, board.tenant))


def log_bytes(core: Core, tenant: str | None) -> int:
    """Return the size of the log on disk, or of a tenant's part of it, in bytes."""
    return core.log_bytes if tenant is None else core.registry.retained.of(tenant)


def status_of(service: Service, tenant: str | None) -> dict[str, Any]:
    """Return the status of a server, or only that of one tenant."""
    core = service.core
    pipeline, log, registry = core.pipeline, core.log, core.registry
    done = pipeline.matching.done(tenant)

    def count(names: dict[tuple[str, str], Any]) -> int:
        return sum(tenant in (None, owner) for owner, _ in list(names))

    state: dict[str, Any] = {
        "epoch": core.epoch,
        "log": log.epoch,
        "first_seq": log.first,
        "durable_seq": pipeline.durable,
        "matched_seq": pipeline.matched,
        "durability": core.durability,
        "disk_full": pipeline.is_full,
        "log_bytes": log_bytes(core, tenant),
        "uptime_seconds": round(time.monotonic() - service.started_at, 1),
        "events": done.events,
        "edits": done.edits,
        "matches": done.pairs,
        "updates": done.updates,
        "spaces": count(registry.spaces),
        "boards": count(registry.boards),
        "subscriptions": subscriptions(core, tenant),
        "interests": interests(core, tenant),
        "consumers": count(registry.consumers),
        "listeners": listeners(core, tenant),
    }
    if tenant is None:
        state["snapshot_seq"] = core.snapshot_seq
        state["damage"] = [text.partition("\n")[0] for _, text in sorted(log.damage.items())]
    if core.sources and tenant in (None, TENANT):
        state["sources"] = [source.status() for source in core.sources.values()]
    if service.follower is not None:
        state["follower"] = service.follower.status()
    if service.links is not None and tenant in (None, TENANT):
        state |= service.links.status()
    return state
