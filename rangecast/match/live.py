"""Match a live set: merge the matches of its parts, without dead rows, into one result.

Each view has its own indexes that leave out the rows dead in it (`match.masked`). They share all
but a bitmap with the indexes of the previous view, and are created by the first query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.device.live import DeviceSet
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, has_nan
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.callbacks import address_of
from rangecast.kernels.jit import jit
from rangecast.match.cells.index import Cells
from rangecast.match.choose import Index
from rangecast.match.device import pieces_on_device
from rangecast.match.masked import MaskedIndex, built_index, without
from rangecast.match.recent import Recent
from rangecast.match.result import MatchRows, Work
from rangecast.match.single_event import (
    ALONE,
    NO_NAN,
    NO_ROWS,
    Numbers,
    SingleEvent,
    match_recent,
    single_event,
)
from rangecast.match.slabs.index import Slabs
from rangecast.match.terms.index import Selected, Terms
from rangecast.match.tiles import Tiles
from rangecast.match.values.index import Values
from rangecast.match.warmup import WarmupIndex
from rangecast.model.encoding.events import encode_apart, encode_one
from rangecast.model.sets.live_view import IndexPart, LiveView
from rangecast.model.shapes.verification.candidates import verify_one
from rangecast.model.space import Space
from rangecast.model.text.single_text import TextReader
from rangecast.model.threads import in_turn

_FIRST, _LEAST = 512, 64
"""Events that are matched at first, and at least."""
_ROWS = 1 << 20
"""Matches of the first part that are found before others are put behind them, about."""

View = LiveView[Index, Any]
Part = IndexPart[Index, Any]


@jit
def _join(
    offsets: I64, rows: I32, other_offsets: I64, other_rows: I32, out_offsets: I64, out: I32
) -> None:
    """Concatenate two lists of rows per event."""
    at = 0
    for event in range(len(offsets) - 1):
        out_offsets[event] = at
        start, end = offsets[event], offsets[event + 1]
        for i in range(end - start):
            out[at + i] = rows[start + i]
        at += end - start
        start, end = other_offsets[event], other_offsets[event + 1]
        for i in range(end - start):
            out[at + i] = other_rows[start + i]
        at += end - start
    out_offsets[len(offsets) - 1] = at


class _Prepared(NamedTuple):
    """Calls that answer single events of a view."""

    match: SingleEvent
    unsettled: list[Index]
    """Indexes that may still get faster."""
    texts: TextReader | None
    """Reader of the texts of events, if any is read."""
    reads_texts: bool
    """See `LiveView.reads_texts`."""
    kept: tuple[Bundle[Any], ...]
    """Arrays that the calls read."""


def match_one_live(view: View, points: F64) -> I32:
    """Return the live rows that match one event, (1, d) and contiguous; reject NaN.

    Work isn't counted. The first call on a view prepares the calls for later ones.
    """
    if not view.single_event:
        view.single_event[:] = [_prepared(view, points.shape[1])]
    prepared: _Prepared = view.single_event[0]
    if prepared.texts is None:
        return _match_prepared(view, prepared, points)
    read, alive = prepared.texts.readable_one(points)
    rows = _match_prepared(view, prepared, read)
    del alive  # the texts that were read
    return rows


def match_event_live(
    view: View, space: Space, event: Mapping[str, Any], ignore_unknown: bool, nan: str
) -> I32:
    """Return the live rows that match one event; texts that are read aren't stored."""
    if not view.single_event:
        view.single_event[:] = [_prepared(view, len(space))]
    prepared: _Prepared = view.single_event[0]
    reads = prepared.reads_texts
    if prepared.texts is None:
        points = encode_one(event, space, ignore_unknown=ignore_unknown, nan=nan, texts=reads)
        return _match_prepared(view, prepared, points)
    encoded = encode_apart(event, space, prepared.texts.records, ignore_unknown, nan)
    if encoded is not None:
        points, texts = encoded
        if prepared.texts.read(texts):
            return _match_prepared(view, prepared, points)
    points = encode_one(event, space, ignore_unknown=ignore_unknown, nan=nan, texts=reads)
    return match_one_live(view, points)


def _match_prepared(view: View, prepared: _Prepared, points: F64) -> I32:
    """Match one event, whose texts kernels can read."""
    rows: I32 = prepared.match(points, NO_ROWS)
    unsettled = prepared.unsettled
    if unsettled and any(_has_got_faster(index, len(rows)) for index in unsettled):
        view.single_event[:] = [_prepared(view, points.shape[1])]
    return rows


def _prepared(view: View, dimensions: int) -> _Prepared:
    """Return the single-event calls of a view.

    There is one call per part; the first part that has a kernel also matches the newest rows. The
    last call verifies the rows that all calls found.
    """
    calls: list[SingleEvent] = []
    unsettled: list[Index] = []
    texts: TextReader | None = None
    needed: tuple[Bundle[Any], ...] = ()
    verified = Numbers(NO_ROWS)
    if view.verifier is not None and view.verifier.has_words:
        needed = view.verifier.bundles(view.rows.bounds, view.count)
        tables = np.concatenate([bundle.table for bundle in needed])
        verified = Numbers(NO_ROWS, tables, address_of(verify_one))
        texts = view.verifier.places.text_reader()
    numbers, newest = verified, ALONE[1]
    if view.indexed < view.count:
        newest = _recent(view, dimensions).columns
    for index, set_rows in _searched(view):
        if isinstance(index, Cells | Slabs | Tiles | Values | Terms):
            own = numbers if set_rows is None else numbers._replace(set_rows=set_rows)
            calls.append(index.single_event(Bundle(own), newest))
            newest = ALONE[1]
        else:
            if needed and not calls:
                calls.append(single_event(match_recent, Bundle(verified), ALONE[1]))
            calls.append(partial(_match_plainly, index, set_rows))
        numbers = Numbers(NO_ROWS)  # the first call, which is made last, verifies
        if (
            index.is_loose
            if isinstance(index, Cells)
            else isinstance(index, WarmupIndex | MaskedIndex | Selected)
        ):
            unsettled.append(index)
    if newest is not ALONE[1] or not calls:
        calls.append(single_event(match_recent, Bundle(numbers), newest))
    # The first part is by far the largest: as the last one, its rows aren't copied again.
    calls.reverse()
    match = calls[0] if len(calls) == 1 else partial(_match_by_all, calls)
    return _Prepared(match, unsettled, texts, view.reads_texts, needed)


def _searched(view: View) -> Iterator[tuple[Any, I32 | None]]:
    """Yield the structures that single events search, with the set's row of each of their rows.

    `None`: the row numbers are equal. A structure that selects by terms is searched as the two that
    it consists of, once single events are no longer counted.
    """
    for part, some in zip(view.parts, _living(view), strict=True):
        index, set_rows = built_index(some), None if part.is_whole else part.set_rows
        if not isinstance(index, Selected) or not index.terms.is_settled:
            yield index, set_rows
            continue
        yield index.terms, set_rows
        if index.placed is not None:
            yield (
                built_index(index.placed),
                index.rows if set_rows is None else set_rows[index.rows],
            )


def _match_by_all(calls: list[SingleEvent], points: F64, rows: I32) -> I32:
    """Chain the calls: each one appends its matches to those of the previous calls."""
    for call in calls:
        rows = call(points, rows)
    return rows


def _match_plainly(index: Index, set_rows: I32 | None, points: F64, rows: I32) -> I32:
    """Match with an index that has no single-event kernel, and append the other rows."""
    if has_nan(points):
        raise UsageError(NO_NAN)
    own = index.match_one(points[0])
    own = own if set_rows is None else set_rows[own]
    return np.concatenate([own, rows]) if len(rows) else own


def _has_got_faster(index: Index, entries: int) -> bool:
    """Return whether an index got faster after an answer with this many entries."""
    if isinstance(index, Selected):
        return index.terms.is_settled
    if not isinstance(index, Cells):
        return built_index(index) is not index
    index.mark_dead_entries(entries)
    return not index.is_loose


def match_live(view: View, points: F64) -> MatchRows:
    """Return the live rows that match each event, (events, d)."""
    return in_turn(partial(_match_live, view), points, len(points))


def _match_live(view: View, points: F64) -> MatchRows:
    if view.is_plain:
        return view.parts[0].index.match(points)
    if view.verifier is None or not view.verifier.has_words:
        return _match_boxes(view, points)
    read, alive = view.verifier.places.readable(points)
    matches = _match_boxes(view, read)
    if not _is_exact(view):
        matches = _verified(view, read, matches)
    del alive  # the texts that were read
    return matches


def _is_exact(view: View) -> bool:
    """Return whether the first part verifies its rows itself."""
    if not view.parts:
        return False
    index = _living(view)[0]
    return isinstance(index, Selected) and index.is_exact


def _verified(view: View, points: F64, matches: MatchRows) -> MatchRows:
    """Return the candidates that match their event."""
    assert view.verifier is not None
    candidates = matches.offsets, matches.rows
    offsets, rows = view.verifier.verified(view.rows.bounds, view.count, points, *candidates)
    work = matches.work._replace(tested=matches.work.tested + len(matches.rows))
    return MatchRows(offsets, rows, work)


def match_on_device(view: View, held: DeviceSet, points: F64) -> tuple[MatchRows, ...]:
    """Return the live rows that match each event, in chunks; a device finds the candidates."""
    with held.lock:
        held.show(view)
        pieces = pieces_on_device(held, points)
    if view.verifier is None or not view.verifier.has_words:
        return pieces
    read, alive = view.verifier.places.readable(points)
    verified, first = [], 0
    for piece in pieces:
        own_points = read[first : first + len(piece.offsets) - 1]
        candidates = piece.offsets, piece.rows
        offsets, rows = view.verifier.verified(
            view.rows.bounds, view.count, own_points, *candidates
        )
        verified.append(MatchRows(offsets, rows, Work(tested=len(piece.rows))))
        first += len(own_points)
    del alive  # the texts that were read
    return tuple(verified)


def count_on_device(view: View, held: DeviceSet, points: F64) -> I64:
    """Count the live rows that match each event; enumerate them where they must be verified."""
    if view.has_words:
        counts = [np.diff(piece.offsets) for piece in match_on_device(view, held, points)]
        return np.concatenate(counts)
    with held.lock:
        held.show(view)
        return held.counts(points)


def _match_boxes(view: View, points: F64) -> MatchRows:
    """Return the live rows whose boxes contain each event.

    Their shapes and texts aren't verified, unless the view is exact.
    """
    if not view.parts:
        return _recent(view, points.shape[1]).match(points)
    base, index = view.parts[0], _living(view)[0]
    if len(view.parts) == 1 and view.indexed == view.count:
        matches = _renumbered(index.match(points), base)
        if view.verifier is not None and _is_exact(view):
            view.verifier.count_exact(len(points), len(matches.rows))
        return matches
    if isinstance(index, Cells) and base.is_whole:
        others = _match_others(view, points)
        matches = index.match(points, others)
        return matches._replace(work=matches.work.plus(others.work))
    return _match_joined(view, points)


def _match_joined(view: View, points: F64) -> MatchRows:
    """Match in blocks of events, so that only the result allocates memory."""
    base, index, is_exact = view.parts[0], _living(view)[0], _is_exact(view)
    offsets = np.zeros(len(points) + 1, np.int64)
    rows = np.empty(0, np.int32)
    work = Work()
    first, at, take = 0, 0, _FIRST
    while first < len(points):
        last = min(first + take, len(points))
        others = _match_others(view, points[first:last])
        matches = _renumbered(index.match(points[first:last]), base)
        if view.verifier is not None and is_exact:
            view.verifier.count_exact(0, len(matches.rows))
            others = _verified(view, points[first:last], others)
        end = at + len(matches.rows) + len(others.rows)
        if end > len(rows):
            room = end if last == len(points) else int(1.1 * end * len(points) / last)
            rows, so_far = np.empty(room, np.int32), rows
            rows[:at] = so_far[:at]
        mine = offsets[first : last + 1]
        _join(matches.offsets, matches.rows, others.offsets, others.rows, mine, rows[at:])
        mine += at
        at = int(mine[-1])
        work = work.plus(matches.work).plus(others.work)
        first, take = last, max(_LEAST, _ROWS * last // max(1, at))
    return MatchRows(offsets, rows[:at], work)


def _living(view: View) -> tuple[Index, ...]:
    """Return the indexes of all parts, without the rows dead in this view."""
    if not view.living:
        view.living.append(tuple(_without_dead(view, part) for part in view.parts))
    return view.living[0]


def _without_dead(view: View, part: Part) -> Index:
    """Return the index of a part without dead rows, derived from an earlier view if possible."""
    counted, index = part.masked[0] if part.masked else (0, part.index)
    if counted > view.dead:  # a later view was first
        counted, index = 0, part.index
    dead = part.own_rows(view.rows.deaths[counted : view.dead])
    if len(dead):
        index = without(index, dead, part.count)
    part.masked[:] = [(view.dead, index)]
    return index


def _renumbered(matches: MatchRows, part: Part) -> MatchRows:
    """Map the matches of a part to row numbers of the set."""
    return matches if part.is_whole else matches._replace(rows=part.set_rows[matches.rows])


def _recent(view: View, dimensions: int) -> Recent:
    """Return the live rows that are newer than all parts."""
    if not view.recent:
        start, end = view.indexed, view.count
        free = [] if view.verifier is None else view.verifier.places.axes
        view.recent.append(Recent(view.rows, view.edit, start, end, dimensions, free))
    newest: Recent = view.recent[0]
    return newest


def _match_others(view: View, points: F64) -> MatchRows:
    """Return the matches from everything but the first part, which is by far the largest."""
    matches = [
        _renumbered(index.match(points), part)
        for part, index in zip(view.parts[1:], _living(view)[1:], strict=True)
    ]
    if view.indexed < view.count:
        matches.append(_recent(view, points.shape[1]).match(points))
    joined = matches[0]
    for other in matches[1:]:
        offsets = np.empty_like(joined.offsets)
        rows = np.empty(len(joined.rows) + len(other.rows), np.int32)
        _join(joined.offsets, joined.rows, other.offsets, other.rows, offsets, rows)
        joined = MatchRows(offsets, rows, joined.work.plus(other.work))
    return joined
