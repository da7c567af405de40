"""Create consumers together with their first subscriptions, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.admission import ConsumerExistsError
from rangecast.server.state.edits import PutConsumer, PutSubscription
from rangecast.server.state.registry import Registry, RequestError

_ATTEMPTS = 5
"""Lookups of missing consumers, if other requests create them at the same time."""


async def subscribed(
    registry: Registry,
    edits: Sequence[PutSubscription],
    submit: Callable[[list[PutConsumer]], Future[int]],
    *,
    create_consumer: bool,
) -> int:
    """Submit subscriptions of one space, creating missing consumers if allowed; return their seq.

    submit   submits the given consumers and then the subscriptions, as one unit
    """
    if not create_consumer:
        return await result_of(submit([]))
    for _ in range(_ATTEMPTS):
        missing = _missing(registry, edits)
        try:
            return await result_of(submit(missing)) + len(missing)
        except ConsumerExistsError:
            continue  # another request created it in the meantime
    raise RequestError(
        503, "a consumer is repeatedly created and deleted concurrently\n  hint: try again"
    )


def _missing(registry: Registry, edits: Sequence[PutSubscription]) -> list[PutConsumer]:
    tenant, space = edits[0].tenant, edits[0].space
    names = dict.fromkeys([edit.consumer for edit in edits])
    return [
        PutConsumer(tenant, name, space, only_new=True)
        for name in names
        if name and (tenant, name) not in registry.consumers
    ]
