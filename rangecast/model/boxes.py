"""Set of subscriptions as plain arrays: the input of every index structure.

    lo, hi    (boxes, d) float64   closed box; -inf and +inf where an attribute is unrestricted
    owner     (boxes,)   int32     row of the subscription that a box belongs to, ascending
    ids       (rows,)    Arrow     user ids, all int64 or all text
    scores    (rows,)    float64
    weights   (rows, d)  float64   or None: all 1

Rows are in order of arrival, so that a lower row wins a tie. All arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, AnyArray, Bool
from rangecast.model.attributes.numbers import MAX

if TYPE_CHECKING:
    from rangecast.model.space import Space


def frozen(array: npt.ArrayLike, dtype: npt.DTypeLike) -> AnyArray:
    """Return a read-only, C-contiguous array; the caller's array is not modified."""
    values = np.asarray(array)
    fixed = np.ascontiguousarray(values, dtype=dtype)
    if fixed.flags.writeable and np.may_share_memory(fixed, values):
        fixed = fixed.copy()
    fixed.flags.writeable = False
    return fixed


def as_points(points: npt.ArrayLike, dimensions: int, *, one: bool = False) -> F64:
    """Return events as a contiguous, read-only array for kernels; reject other shapes.

    The shape is (events, d), or (d,) for `one` event.
    """
    if one and type(points) is np.ndarray and points.shape == (dimensions,):
        flags = points.flags
        if points.dtype == np.float64 and flags.c_contiguous and not flags.writeable:
            return points
    coordinates = np.ascontiguousarray(points, np.float64).view()
    if coordinates.ndim != 2 - one or coordinates.shape[-1] != dimensions:
        expected = f"({dimensions},)" if one else f"(events, {dimensions})"
        raise UsageError(
            f"events of this set must have the shape {expected}; given: {coordinates.shape}"
        )
    coordinates.flags.writeable = False
    return coordinates


def closed_range(lo: Any, hi: Any) -> tuple[Any, Any]:
    """Replace infinite ends of a range, or of arrays of ranges, by the largest finite values.

    An open end of a range is always represented as -MAX or MAX.
    """
    return np.maximum(lo, -MAX), np.minimum(hi, MAX)


@dataclass(frozen=True, eq=False)
class Boxes:
    """Subscriptions as boxes, in order of arrival. Create it with `Boxes.of`."""

    lo: F64
    hi: F64
    owner: I32
    ids: pa.Array
    scores: F64
    weights: F64 | None
    space: Space | None = None
    """Whose coordinates these are; `None`: plain arrays, of whatever space they are given to."""

    @classmethod
    def of(
        cls,
        lo: npt.ArrayLike,
        hi: npt.ArrayLike,
        *,
        owner: npt.ArrayLike | None = None,
        ids: Sequence[str] | Sequence[int] | pa.Array | None = None,
        scores: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        space: Space | None = None,
    ) -> Boxes:
        """Validate and bundle the arrays. Without `owner`, each box is a subscription."""
        lo, hi = frozen(lo, np.float64), frozen(hi, np.float64)
        if lo.ndim != 2 or lo.shape != hi.shape or lo.shape[1] == 0:
            raise UsageError(
                f"lo and hi must have the shape (boxes, d); given: {lo.shape}, {hi.shape}"
            )
        if not (lo <= hi).all():
            worst = int(np.argmin((lo <= hi).all(axis=1)))
            raise UsageError(
                f"box {worst} is empty or contains NaN: lo {lo[worst]}, hi {hi[worst]}"
            )
        owner = frozen(np.arange(len(lo)) if owner is None else owner, np.int32)
        rows = int(owner[-1]) + 1 if len(owner) else 0
        steps = np.diff(owner, prepend=-1)
        if owner.shape != (len(lo),) or not ((steps == 0) | (steps == 1)).all():
            raise UsageError("owner must have one row per box, ascending from 0 without gaps")
        ids = id_array(np.arange(rows) if ids is None else ids)
        scores = frozen(np.zeros(rows) if scores is None else scores, np.float64)
        if len(ids) != rows or scores.shape != (rows,):
            raise UsageError(f"{rows} subscriptions, {len(ids)} ids, {len(scores)} scores")
        if weights is not None:
            weights = frozen(weights, np.float64)
            if weights.shape != (rows, lo.shape[1]):
                raise UsageError(f"weights must have the shape {(rows, lo.shape[1])}")
            good = np.isfinite(weights) & (weights >= 0)
            if not good.all():
                row, axis = np.argwhere(~good)[0].tolist()
                raise UsageError(
                    f"weights must be finite and not negative; given for attribute {axis} of "
                    f"subscription {ids[row]}: {weights[row, axis]}"
                )
        if not np.isfinite(scores).all():
            raise UsageError("scores must be finite")
        return cls(lo, hi, owner, ids, scores, weights, space)

    @property
    def dimensions(self) -> int:
        """Number of attributes."""
        return int(self.lo.shape[1])

    @property
    def rows(self) -> int:
        """Number of subscriptions."""
        return len(self.ids)

    @cached_property
    def box_offsets(self) -> I64:
        """Index of the first box of each subscription, followed by the number of boxes."""
        return frozen(np.searchsorted(self.owner, np.arange(self.rows + 1)), np.int64)

    @cached_property
    def mentions(self) -> Bool:
        """Mask of the attributes that each box restricts, (boxes, d)."""
        return frozen(~((self.lo == -np.inf) & (self.hi == np.inf)), np.bool_)

    def take(self, rows: Iterable[int] | AnyArray) -> Boxes:
        """Return the subscriptions at these rows, in this order."""
        wanted = np.asarray(rows, dtype=np.int64)
        if len(self.lo) == self.rows:
            box, owner = wanted, np.arange(len(wanted))
        else:
            first = self.box_offsets
            counts = first[wanted + 1] - first[wanted]
            owner = np.repeat(np.arange(len(wanted)), counts)
            ends = np.cumsum(counts)
            within = np.arange(len(owner)) - np.repeat(ends - counts, counts)
            box = np.repeat(first[wanted], counts) + within
        weights = None if self.weights is None else self.weights[wanted]
        return Boxes.of(
            self.lo[box],
            self.hi[box],
            owner=owner,
            ids=self.ids.take(pa.array(wanted)),
            scores=self.scores[wanted],
            weights=weights,
            space=self.space,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)


def id_array(ids: Any) -> pa.Array:
    """Return user ids as one Arrow array, int64 or text; reject other and mixed types."""
    detail = ""
    try:
        array = ids if isinstance(ids, pa.Array) else pa.array(ids)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if not len(array) and not _is_text(kind):  # nothing has no type of its own
            return pa.array([], pa.int64())
        detail = f"; given: {array.null_count} missing" if array.null_count else f"; given: {kind}"
        if not array.null_count and pa.types.is_integer(kind):
            return array.cast(pa.int64())
        if not array.null_count and _is_text(kind):
            return array.cast(pa.large_string())
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        detail = f"\n  {error}"
    raise UsageError(
        f"ids must be all 64-bit integers or all strings, and none may be missing{detail}"
    )


def _is_text(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string))
