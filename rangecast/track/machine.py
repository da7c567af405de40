"""Rules of tracks as kernels: columns of objects and stays in, transitions out.

A stay relates an object to a subscription, from the event that begins it to the one that ends it.
Two bits are its state:

    signal   confirmed
      1         0        began; not yet inside for as long as the rule requires
      1         1        inside
      0         1        left; not yet outside for as long as the rule requires

The signal is the filter, widened by the second condition of the rule; `for_` then confirms it. At
equal times, an event is applied before timers; earlier timers run before the event. All transitions
of an object at one moment are one group: sorted, and numbered on from the last one.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I64, U8
from rangecast.kernels.jit import jit
from rangecast.track.columns import MatchColumns, Objects, Output, Rules, Stays

EXIT, CROSS, ENTER, INSIDE, DWELL = 0, 1, 2, 3, 4
"""Transitions, in their order at one moment."""
BY_EVENT, BY_EDIT, BY_REMOVAL, BY_SILENCE, BY_TIME = 0, 1, 2, 3, 4
"""Reasons."""
NONE, KEEPS, ENDS = 0, 1, 2
"""Effects of the second condition of a rule on a stay."""
MATCHED, SECOND, CROSSED, UNSURE = 1, 2, 4, 8
"""Flags of an event for a subscription: its filter matches, its second condition does, the path to
the event meets it, the accuracy of the event doesn't tell on which side of the border it is."""
SIGNAL, CONFIRMED, DWELT, EDITED, FIRST = 1, 2, 4, 8, 16
"""Flags of a stay."""
AS_ENTER, AS_SILENT, AS_INSIDE = 0, 1, 2
"""Reports of a first sighting inside."""
NEVER = np.iinfo(np.int64).min
"""The last event of an object that hasn't had any."""
FAR = np.iinfo(np.int64).max
STAYS, FREE, OUT, LATE, REPEATED, LIVE, NEXT, FULL = 0, 1, 2, 3, 4, 5, 6, 7
"""Places in the totals: stays ever used, first free one, rows of the output, late and repeated
events, stays there are, when the next timer is due, whether it is the stays that have no room."""
TOTALS = 8


@jit
def _row(rules: Rules, subscription: int) -> int:
    """Return the row of a subscription's rule."""
    listed = rules.subscriptions
    if not len(listed):
        return 0
    index = int(np.searchsorted(listed, subscription))
    return index + 1 if index < len(listed) and listed[index] == subscription else 0


@jit
def _due(stays: Stays, rules: Rules, stay: int) -> int:
    """Return when the next timer of a stay is due."""
    row = _row(rules, stays.subscription[stay])
    flags = stays.flags[stay]
    if not flags & CONFIRMED:
        return int(stays.since[stay] + rules.confirm[row])
    if not flags & SIGNAL:
        return int(stays.left[stay] + rules.confirm[row])
    if rules.dwell[row] and not flags & DWELT:
        return int(stays.since[stay] + rules.dwell[row])
    return FAR


@jit
def _emit(
    out: Output, totals: I64, slot: int, stays: Stays, stay: int, cause: tuple[int, int, int, int]
) -> None:
    row = totals[OUT]
    out.slot[row] = slot
    out.subscription[row] = stays.subscription[stay]
    out.kind[row] = cause[0]
    out.reason[row] = cause[1]
    out.at[row] = cause[2]
    out.event[row] = cause[3]
    out.since[row] = stays.since[stay]
    totals[OUT] = row + 1


@jit
def _exit(
    out: Output, totals: I64, slot: int, stays: Stays, stay: int, cause: tuple[int, int, int]
) -> None:
    """Report the end of a stay, unless it was never confirmed."""
    flags = stays.flags[stay]
    if flags & CONFIRMED:
        reason = BY_EDIT if flags & EDITED and cause[0] in (BY_EVENT, BY_TIME) else cause[0]
        _emit(out, totals, slot, stays, stay, (EXIT, reason, cause[1], cause[2]))


@jit
def _confirm(
    out: Output,
    totals: I64,
    slot: int,
    stays: Stays,
    stay: int,
    cause: tuple[int, int, int],
    first: int,
) -> None:
    """Confirm a stay, and report it as the rule's `first` requires."""
    is_first = stays.flags[stay] & FIRST
    stays.flags[stay] |= CONFIRMED
    if is_first and first == AS_SILENT:
        return
    kind = INSIDE if is_first and first == AS_INSIDE else ENTER
    _emit(out, totals, slot, stays, stay, (kind, cause[0], cause[1], cause[2]))


@jit
def _remove(objects: Objects, stays: Stays, totals: I64, slot: int, before: int, stay: int) -> int:
    """Remove the stay after `before` from an object's list; return the next one."""
    after = int(stays.next[stay])
    if before < 0:
        objects.stay[slot] = after
    else:
        stays.next[before] = after
    stays.next[stay] = totals[FREE]
    totals[FREE] = stay
    totals[LIVE] -= 1
    return after


@jit
def _close(objects: Objects, out: Output, slot: int, begin: int, end: int) -> None:
    """Sort the transitions of one moment, and number them."""
    for row in range(begin + 1, end):
        at = row
        while at > begin and (
            out.kind[at - 1] > out.kind[at]
            or (
                out.kind[at - 1] == out.kind[at] and out.subscription[at - 1] > out.subscription[at]
            )
        ):
            for column in (out.subscription, out.kind, out.reason, out.since, out.event):
                column[at - 1], column[at] = column[at], column[at - 1]
            at -= 1
    for row in range(begin, end):
        out.number[row] = objects.number[slot]
        objects.number[slot] += 1


@jit
def _stamp(objects: Objects, slot: int, at: int) -> None:
    """Advance an object to a moment."""
    if at > objects.stamp[slot]:
        objects.stamp[slot] = at
        objects.number[slot] = 0


@jit
def _next_moment(
    objects: Objects, stays: Stays, rules: Rules, slot: int, after: int
) -> tuple[int, bool]:
    """Return when the next timer of an object is due, and whether that timer is its silence."""
    due = FAR
    stay = objects.stay[slot]
    if stay < 0:
        return FAR, False
    while stay >= 0:
        due = min(due, _due(stays, rules, stay))
        stay = stays.next[stay]
    if after < 0:
        return due, False
    silence = objects.last[slot] + after
    return min(silence, due), silence <= due


@jit
def _run_timers(
    objects: Objects,
    stays: Stays,
    rules: Rules,
    out: Output,
    totals: I64,
    slot: int,
    moment: int,
    is_silence: bool,
) -> None:
    """Run the timers of an object that are due at a moment."""
    _stamp(objects, slot, moment)
    at = objects.stamp[slot]
    before, stay = -1, objects.stay[slot]
    while stay >= 0:
        if is_silence:
            _exit(out, totals, slot, stays, stay, (BY_SILENCE, at, -1))
            stay = _remove(objects, stays, totals, slot, before, stay)
            continue
        if _due(stays, rules, stay) == moment:
            if not stays.flags[stay] & CONFIRMED:
                row = _row(rules, stays.subscription[stay])
                _confirm(out, totals, slot, stays, stay, (BY_TIME, at, -1), rules.first[row])
            elif not stays.flags[stay] & SIGNAL:
                _exit(out, totals, slot, stays, stay, (BY_TIME, at, -1))
                stay = _remove(objects, stays, totals, slot, before, stay)
                continue
            else:
                stays.flags[stay] |= DWELT
                _emit(out, totals, slot, stays, stay, (DWELL, BY_TIME, at, -1))
        before, stay = stay, stays.next[stay]


@jit
def _run_before(
    objects: Objects,
    stays: Stays,
    rules: Rules,
    out: Output,
    totals: I64,
    slot: int,
    limit: int,
    after: int,
) -> None:
    """Run all timers of an object that are due before a moment."""
    begin = totals[OUT]
    moment, is_silence = _next_moment(objects, stays, rules, slot, after)
    while moment < limit:
        if moment > objects.stamp[slot]:
            _close(objects, out, slot, begin, totals[OUT])
            begin = totals[OUT]
        _run_timers(objects, stays, rules, out, totals, slot, moment, is_silence)
        moment, is_silence = _next_moment(objects, stays, rules, slot, after)
    _close(objects, out, slot, begin, totals[OUT])


@jit
def _signal(rule: int, flags: int, was: int) -> bool:
    """Return whether an object is inside, by the filter and the second condition."""
    if flags & MATCHED:
        return True
    if not was:
        return False
    if rule == KEEPS:
        return (flags & SECOND) != 0
    return rule == ENDS and not flags & SECOND


@jit
def _move_stays(
    objects: Objects,
    stays: Stays,
    rules: Rules,
    out: Output,
    totals: I64,
    slot: int,
    at: int,
    event: int,
    matched: MatchColumns,
    known: U8,
    report_inside: bool,
) -> None:
    """Apply an event to the existing stays of an object; mark their matches as known."""
    begin, end = matched.offsets[event], matched.offsets[event + 1]
    before, stay = -1, objects.stay[slot]
    while stay >= 0:
        match = begin + np.searchsorted(matched.subscription[begin:end], stays.subscription[stay])
        flags = 0
        if match < end and matched.subscription[match] == stays.subscription[stay]:
            flags = matched.flags[match]
            known[match] = 1
        if flags & UNSURE:
            before, stay = stay, stays.next[stay]
            continue
        row = _row(rules, stays.subscription[stay])
        had = stays.flags[stay]
        if _signal(rules.second[row], flags, had & SIGNAL):
            stays.flags[stay] = (had | SIGNAL) & ~np.uint8(EDITED)
            if report_inside and had & CONFIRMED:
                _emit(out, totals, slot, stays, stay, (INSIDE, BY_EVENT, at, event))
        elif had & SIGNAL:
            if not rules.confirm[row] or not had & CONFIRMED:
                _exit(out, totals, slot, stays, stay, (BY_EVENT, at, event))
                stay = _remove(objects, stays, totals, slot, before, stay)
                continue
            stays.flags[stay] = had & ~np.uint8(SIGNAL)
            stays.left[stay] = at
        before, stay = stay, stays.next[stay]


@jit
def _begin_stays(
    objects: Objects,
    stays: Stays,
    rules: Rules,
    out: Output,
    totals: I64,
    slot: int,
    at: int,
    event: int,
    matched: MatchColumns,
    known: U8,
    is_first: bool,
    last: int,
) -> None:
    """Begin the new stays of an event, and report crossings of the path to it."""
    for index in range(matched.offsets[event], matched.offsets[event + 1]):
        flags = matched.flags[index]
        if known[index] or flags & UNSURE:
            continue
        if not flags & MATCHED:
            if flags & CROSSED:
                row = totals[OUT]
                out.slot[row], out.subscription[row] = slot, matched.subscription[index]
                out.kind[row], out.reason[row] = CROSS, BY_EVENT
                out.at[row], out.since[row], out.event[row] = at, last, event
                totals[OUT] = row + 1
            continue
        stay = totals[FREE]
        if stay >= 0:
            totals[FREE] = stays.next[stay]
        else:
            stay = totals[STAYS]
            totals[STAYS] += 1
        totals[LIVE] += 1
        stays.subscription[stay] = matched.subscription[index]
        stays.since[stay] = at
        stays.left[stay] = at
        stays.flags[stay] = SIGNAL | (FIRST if is_first else 0)
        stays.next[stay] = objects.stay[slot]
        objects.stay[slot] = stay
        row = _row(rules, matched.subscription[index])
        if not rules.confirm[row]:
            _confirm(out, totals, slot, stays, stay, (BY_EVENT, at, event), rules.first[row])


@jit
def room_for(objects: Objects, stays: Stays, slot: int) -> int:
    """Return an upper bound on the transitions that the stays of an object can cause."""
    count = 0
    stay = objects.stay[slot]
    while stay >= 0:
        count += 4
        stay = stays.next[stay]
    return count


@jit
def apply_events(
    objects: Objects,
    stays: Stays,
    rules: Rules,
    out: Output,
    totals: I64,
    slots: I64,
    times: I64,
    matched: MatchColumns,
    known: U8,
    begin: int,
    after: int,
    report_inside: bool,
) -> int:
    """Apply events in order; return the first event that the output has no room for.

    Functions are called only where something happens: each call counts references.
    """
    has_timers = after >= 0 or rules.confirm.any() or rules.dwell.any()
    for event in range(begin, len(slots)):
        slot, at = slots[event], times[event]
        last = objects.last[slot]
        if at <= last:
            totals[REPEATED if at == last else LATE] += 1
            continue
        new = matched.offsets[event + 1] - matched.offsets[event]
        has_stays = objects.stay[slot] >= 0
        if has_stays or new:
            if len(out.slot) - totals[OUT] < room_for(objects, stays, slot) + 3 * new:
                return event
            totals[FULL] = totals[STAYS] + new > len(stays.next)
            if totals[FULL]:
                return event
        if has_stays and has_timers:
            _run_before(objects, stays, rules, out, totals, slot, at, after)
        is_first = last == NEVER or (after >= 0 and at - last > after)
        objects.last[slot] = objects.stamp[slot] = at
        objects.number[slot] = 0
        first_row = totals[OUT]
        if objects.stay[slot] >= 0:
            _move_stays(
                objects, stays, rules, out, totals, slot, at, event, matched, known, report_inside
            )
        if new:
            _begin_stays(
                objects, stays, rules, out, totals, slot, at, event, matched, known, is_first, last
            )
        if has_timers and objects.stay[slot] >= 0:
            moment, is_silence = _next_moment(objects, stays, rules, slot, after)
            while moment <= at:
                _run_timers(objects, stays, rules, out, totals, slot, moment, is_silence)
                moment, is_silence = _next_moment(objects, stays, rules, slot, after)
        if totals[OUT] > first_row:
            _close(objects, out, slot, first_row, totals[OUT])
    return len(slots)


@jit
def run_timers(
    objects: Objects,
    stays: Stays,
    rules: Rules,
    out: Output,
    totals: I64,
    begin: int,
    count: int,
    limit: int,
    after: int,
) -> int:
    """Fire the due timers of the objects from `begin` to `count`.

    Return the first object whose transitions don't fit the output.
    """
    for slot in range(begin, count):
        if objects.stay[slot] >= 0:
            if len(out.slot) - totals[OUT] < room_for(objects, stays, slot):
                return slot
            _run_before(objects, stays, rules, out, totals, slot, limit, after)
            moment, _ = _next_moment(objects, stays, rules, slot, after)
            totals[NEXT] = min(totals[NEXT], moment)
    return count


@jit
def edit_stays(
    objects: Objects,
    stays: Stays,
    out: Output,
    totals: I64,
    begin: int,
    count: int,
    removed: I64,
    edited: I64,
) -> int:
    """End the stays with removed subscriptions, and mark those with edited ones.

    Return the first object that the output has no room for.
    """
    for slot in range(begin, count):
        if len(out.slot) - totals[OUT] < room_for(objects, stays, slot):
            return slot
        first_row = totals[OUT]
        before, stay = -1, objects.stay[slot]
        while stay >= 0:
            subscription = stays.subscription[stay]
            index = np.searchsorted(removed, subscription)
            if index < len(removed) and removed[index] == subscription:
                _exit(out, totals, slot, stays, stay, (BY_REMOVAL, objects.stamp[slot], -1))
                stay = _remove(objects, stays, totals, slot, before, stay)
                continue
            index = np.searchsorted(edited, subscription)
            if index < len(edited) and edited[index] == subscription:
                stays.flags[stay] |= EDITED
            before, stay = stay, stays.next[stay]
        _close(objects, out, slot, first_row, totals[OUT])
    return count
