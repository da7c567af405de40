"""Trackers on disk: a snapshot of columns, with subscriptions identified by id."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I64
from rangecast.model.sets.members import Id
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    with_prefix,
    without_prefix,
)
from rangecast.track.columns import MatchColumns
from rangecast.track.state import Content
from rangecast.track.waiting import Batch

_KIND = "tracker"


class TrackerState(NamedTuple):
    """The complete state of a tracker."""

    content: Content
    waiting: Batch
    numbers: I64
    """Numbers of the subscriptions in the content and in waiting events, ascending."""
    ids: list[Id]
    gone: list[bool]
    """Which of `ids` are gone from the live set."""
    settings: dict[str, Any]
    progress: dict[str, Any]

    def renumbered(self, numbers: I64, width: int) -> tuple[Content, Batch]:
        """Return content and waiting events with new subscription numbers.

        width   width of points; those of a space with fewer attributes don't begin a path
        """
        own = np.searchsorted(self.numbers, self.content.subscription)
        points = _widened(self.content.points, width)
        content = self.content._replace(subscription=numbers[own], points=points)
        offsets, subscription, flags = self.waiting.matched
        new = numbers[np.searchsorted(self.numbers, subscription)]
        events = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        order = np.lexsort((new, events))
        matched = MatchColumns(offsets.copy(), new[order], flags[order])
        points = _widened(self.waiting.points, width)
        return content, self.waiting._replace(matched=matched, points=points)


def save_tracker(path: str | Path, saved: TrackerState, *, overwrite: bool) -> None:
    """Write a snapshot; reject an existing one unless `overwrite`."""
    content, waiting = saved.content, saved.waiting
    known = waiting.ids.is_valid()
    has_texts = pa.types.is_large_string(waiting.ids.type) or pa.types.is_string(waiting.ids.type)
    waiting_ids = waiting.ids if has_texts else waiting.ids.cast(pa.int64())
    arrays = {
        **with_prefix("key_", id_buffers(content.keys)),
        **{name: getattr(content, name) for name in content._fields[1:]},
        **with_prefix("waiting_key_", id_buffers(waiting.keys)),
        **with_prefix("waiting_", waiting.matched._asdict()),
        "waiting_times": waiting.times,
        "waiting_points": waiting.points,
        "waiting_has_id": known.to_numpy(zero_copy_only=False),
        **with_prefix("waiting_id_", id_buffers(waiting_ids.fill_null("" if has_texts else 0))),
        "numbers": saved.numbers,
        "gone": np.array(saved.gone, np.bool_),
        **with_prefix("subscription_", id_buffers(_as_ids(saved.ids))),
    }
    meta = {"settings": saved.settings, "progress": saved.progress}
    save_arrays(path, _KIND, arrays, meta, overwrite=overwrite)


def load_tracker(path: str | Path) -> TrackerState:
    """Read a snapshot."""
    arrays, meta = load_arrays(path, _KIND)
    keys = ids_of_buffers(without_prefix("key_", arrays))
    content = Content(keys, *(arrays[name] for name in Content._fields[1:]))
    ids = ids_of_buffers(without_prefix("waiting_id_", arrays))
    lacking = ~arrays["waiting_has_id"]
    ids = pa.array(ids.to_pylist(), ids.type, mask=lacking) if lacking.any() else ids
    waiting = Batch(
        ids_of_buffers(without_prefix("waiting_key_", arrays)),
        arrays["waiting_times"],
        ids,
        MatchColumns(*(arrays[f"waiting_{name}"] for name in MatchColumns._fields)),
        arrays["waiting_points"],
    )
    subscriptions = ids_of_buffers(without_prefix("subscription_", arrays)).to_pylist()
    gone = arrays["gone"].tolist()
    numbers = arrays["numbers"]
    return TrackerState(
        content, waiting, numbers, subscriptions, gone, meta["settings"], meta["progress"]
    )


def _widened(points: F64, width: int) -> F64:
    return points if points.shape[1] in (0, width) else np.full((len(points), width), np.nan)


def _as_ids(ids: list[Id]) -> pa.Array:
    is_int = bool(ids) and isinstance(ids[0], int)
    return pa.array(ids, pa.int64() if is_int else pa.large_string())
