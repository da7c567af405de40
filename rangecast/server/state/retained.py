"""Bytes of events and edits in the log, by tenant."""

from __future__ import annotations

COARSE = 16 << 20
"""Bytes that are forgotten together: so the list of a tenant stays short."""


class RetainedBytes:
    """Retained bytes by tenant, derived from the log; only the committer changes it."""

    def __init__(self, parts: dict[str, list[tuple[int, int]]] | None = None):
        self.parts = parts or {}
        """By tenant: pieces of the log, each as the last seq and the bytes of its events."""
        self._sums = {name: sum(size for _, size in units) for name, units in self.parts.items()}

    def note(self, tenant: str, last: int, size: int) -> None:
        """Count a unit of a tenant."""
        units = self.parts.setdefault(tenant, [])
        if units and units[-1][1] + size <= COARSE:
            size_before = units.pop()[1]
            units.append((last, size_before + size))
        else:
            units.append((last, size))
        self._sums[tenant] = self._sums.get(tenant, 0) + size

    def forget(self, first: int) -> None:
        """Stop counting the units before the first seq of the log."""
        for tenant in list(self.parts):
            self.parts[tenant] = [part for part in self.parts[tenant] if part[0] >= first]
            self._sums[tenant] = sum(size for _, size in self.parts[tenant])

    def of(self, tenant: str) -> int:
        """Return the retained bytes of a tenant."""
        return self._sums.get(tenant, 0)
