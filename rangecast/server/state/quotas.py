"""Quotas of tenants: limits set by an administrator, and rates."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from rangecast.errors import FilterError, RangecastError
from rangecast.model.filters.compile import MAX_BOXES
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.many import boxes_of_texts
from rangecast.model.filters.tentative import TentativeBoxes, TentativeSpace
from rangecast.model.space import Space
from rangecast.server.state.edits import CHARGED_EDITS, AnyEdit, size_of
from rangecast.server.state.registry import Registry, RequestError

LIMITS = {
    "events_per_second": "events published per second",
    "edits_per_second": "subscriptions, interests, consumers and spaces written per second",
    "bytes_per_second": "bytes of events and edits per second",
    "subscriptions": "subscriptions",
    "filter_length": "characters of a filter",
    "filter_boxes": "boxes of a filter",
    "consumers": "consumers",
    "webhooks": "consumers with a webhook",
    "sessions": "open WebSockets and streams",
    "retained_bytes": "bytes of events and edits in the log",
}
DEFAULTS = {"filter_length": 64 << 10, "filter_boxes": MAX_BOXES}
"""Limits that apply to a tenant without its own, which may be higher or lower."""
INLINE_LENGTH = 2 << 10
"""Characters of a filter that is read on the event loop: another thread would take longer."""


class Quotas:
    """Rate counters of tenants; stored entities are counted by the registry. Publishing is
    thread-safe.
    """

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic):
        self._registry = registry
        self._clock = clock
        self._left: dict[tuple[str, str], tuple[float, float]] = {}
        """Tokens left of a rate, and since when; below 0 after a large request."""
        self._lock = threading.Lock()
        self._sessions: Counter[str] = Counter()

    def limit(self, tenant: str, name: str) -> int | None:
        """Return a limit of a tenant; `None` if it has none."""
        return self._registry.tenants.get(tenant, {}).get(name, DEFAULTS.get(name))

    def publish(self, tenant: str, events: int, size: int) -> None:
        """Count events about to be published; reject them if the rate is already exceeded.

        A request is accepted as a whole: a large one uses up the rate of those after it.
        """
        self._count(tenant, {"events_per_second": events, "bytes_per_second": size})

    def charge_edits(self, tenant: str, edits: Sequence[AnyEdit]) -> None:
        """Charge edits to a tenant's rates before they are applied; deletions are free."""
        if self._registry.tenants.get(tenant):
            puts = [edit for edit in edits if isinstance(edit, CHARGED_EDITS)]
            if puts:
                used = {"edits_per_second": len(puts), "bytes_per_second": size_of(puts)}
                self._count(tenant, used)

    def _count(self, tenant: str, used: dict[str, int]) -> None:
        if not self._registry.tenants.get(tenant):
            return
        size = used["bytes_per_second"]
        limit, kept = self.limit(tenant, "retained_bytes"), self._registry.retained.of(tenant)
        if limit is not None and kept + size > limit:
            raise RequestError(
                403,
                f"the log may hold {limit:,} bytes of this tenant, and has {kept:,}\n"
                "  hint: wait until retention removes old ones, or request a higher limit",
            )
        with self._lock:
            self._use(tenant, used)

    def _use(self, tenant: str, used: dict[str, int]) -> None:
        now = self._clock()
        left: dict[str, float] = {}
        for name in used:
            limit = self.limit(tenant, name)
            if limit is None:
                continue
            before, at = self._left.get((tenant, name), (float(limit), now))
            left[name] = min(float(limit), before + (now - at) * limit)
            if left[name] <= 0 or limit == 0:
                wait = f"in {-left[name] / limit:.1f} seconds" if limit else "never"
                what = name.partition("_")[0]
                raise RequestError(
                    429,
                    f"this tenant may send {limit:,} {what} per second and has sent more\n"
                    f"  hint: try again {wait}, or request a higher limit",
                )
        for name, value in left.items():
            self._left[tenant, name] = value - used[name], now

    def parsed(self, tenant: str, text: str, space: Space) -> Filter:
        """Parse a filter; reject one that exceeds the tenant's limits on length or boxes."""
        self.check_length(tenant, text)
        max_boxes = self._max_boxes(tenant)
        filter_ = Filter.parse(text, space, max_boxes=max(max_boxes, MAX_BOXES))
        _check_boxes(len(filter_.boxes), max_boxes)
        return filter_

    def check_length(self, tenant: str, text: str) -> None:
        """Reject a filter that is longer than the tenant's limit."""
        _check_length(text, self._max_length(tenant))

    def _max_length(self, tenant: str) -> int:
        return self.limit(tenant, "filter_length") or 0

    def _max_boxes(self, tenant: str) -> int:
        return self.limit(tenant, "filter_boxes") or 0

    def read_many(
        self, tenant: str, texts: Sequence[str], space: TentativeSpace
    ) -> tuple[TentativeBoxes, dict[int, RangecastError]]:
        """Parse filters; return the valid ones, and the errors of the others by row."""
        longest, limit = self._max_length(tenant), self._max_boxes(tenant)
        rejected: dict[int, RangecastError] = {}
        if max(map(len, texts), default=0) > longest:
            for row, text in enumerate(texts):
                try:
                    _check_length(text, longest)
                except RequestError as error:
                    rejected[row] = error
            texts = ["" if row in rejected else text for row, text in enumerate(texts)]

        def reject(index: int, error: FilterError) -> None:
            rejected.setdefault(index, error)

        def parse(_place: int, text: str) -> Filter:
            return Filter.parse(text, space, max_boxes=max(limit, MAX_BOXES))

        lo, hi, sizes = boxes_of_texts(texts, space, reject, parse)
        if limit < MAX_BOXES:
            good = [row for row in range(len(texts)) if row not in rejected]
            for row, size in zip(good, sizes.tolist(), strict=True):
                try:
                    _check_boxes(size, limit)
                except RequestError as error:
                    rejected[row] = error
            kept = sizes <= limit
            rows = np.repeat(kept, sizes)
            lo, hi, sizes = lo[rows], hi[rows], sizes[kept]
        return TentativeBoxes(space, lo, hi, sizes), rejected

    def check_session(self, tenant: str) -> None:
        """Reject a connection beyond the tenant's limit."""
        limit, count = self.limit(tenant, "sessions"), self._sessions[tenant]
        if limit is not None and count >= limit:
            raise RequestError(
                429,
                f"this tenant may have {limit:,} open connections and has {count:,}\n"
                "  hint: close some, or request a higher limit",
            )

    @contextmanager
    def session(self, tenant: str) -> Iterator[None]:
        """Count a connection while it is open."""
        self._sessions[tenant] += 1
        try:
            yield
        finally:
            self._sessions[tenant] -= 1


def _check_length(text: str, longest: int) -> None:
    if len(text) > longest:
        raise RequestError(
            403,
            f"a filter of this tenant has at most {longest:,} characters, not {len(text):,}\n"
            "  hint: split it into several subscriptions, or request a higher limit",
        )


def _check_boxes(count: int, limit: int) -> None:
    if count > limit:
        raise RequestError(
            403, f"a filter of this tenant has at most {limit:,} boxes, not {count:,}"
        )
