"""Explanation of a set in shards: its parts, and the shards that an event touches."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.spark.steps.shards.sharded_set import ShardedSet

_UNITS = ("bytes", "KB", "MB", "GB", "TB")


def explain_shards(sharded: ShardedSet, rows: int, points: F64 | None = None) -> str:
    """Describe shards, bytes and indexes, and how many shards the events (n, width) touch."""
    shards = sharded.shards
    sizes = [shard.shipped.size for shard in shards]
    structures = Counter(shard.choice.name for shard in shards)
    named = ", ".join(
        name if len(structures) == 1 else f"{count:,} {name}"
        for name, count in structures.most_common()
    )
    lines = [
        f"subscriptions: {rows:,}",
        f"structure: {named} ({shards[0].choice.why})",
        f"shards: {len(shards):,}, {_size(sum(sizes))} in all, the largest {_size(max(sizes))}",
        f"a worker keeps open: {_size(min(sharded.room, sum(sizes)))}",
    ]
    gone = {int(id_) for shard in shards for id_ in shard.gone}
    if gone:
        lines.append(
            f"edits: {len(gone):,} subscriptions of earlier layers were replaced or removed"
        )
    if points is not None and len(points):
        touched = _touched(sharded, points)
        bytes_read = float((touched * np.array(sizes)[:, None]).sum(axis=0).mean())
        counts = touched.sum(axis=0)
        lines.append(
            f"an event touches: {counts.mean():.1f} shards ({_size(bytes_read)}) on average, "
            f"{int(counts.max()):,} at most, of {len(points):,} sample events"
        )
    return "\n".join(lines)


def _touched(sharded: ShardedSet, points: F64) -> F64:
    """Return which shards answer which events, (shards, events)."""
    touched = np.zeros((len(sharded.shards), len(points)))
    everywhere = not sharded.settings(sharded.empty).only_holders
    for row, shard in enumerate(sharded.shards):
        touched[row, slice(None) if everywhere else shard.events_in_hull(points)] = 1.0
    return touched


def _size(count: float) -> str:
    """Format a number of bytes."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
