"""Entries of an exact summary: the advertised boxes, and the subscriptions behind each.

An *entry* is what neighbours know under the id of a row: its own boxes, or the box of a merged
entry. All entries together hold exactly what all rows hold. Other rows aren't
advertised:

* one that lies inside the union of entries has a list of these. When one of them goes or shrinks,
  it is checked again;
* with merging, rows that are one box together are the *members* of one entry, known under one of
  them, its *host*. The entry is exactly what its members hold: when one leaves, and the others
  don't hold its part, the entry dissolves, and the others are judged again.

A command changes the entries first. The advertisement is the difference between what they knew of
the rows that it touched and what they must know now (`difference`).

A row is compared only with entries whose ranges on the curve meet its own, or, to be merged, those
of its box made larger by one value on every side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64, U64, AnyArray, Bool
from rangecast.merge.cells import Cells
from rangecast.merge.holders import Holders
from rangecast.merge.perfect import cut_out, united, widened
from rangecast.merge.ranges import Ranges, RangeSets, range_sets
from rangecast.model.forward import Forward
from rangecast.model.sets.members import Id

Bounds = tuple[F64, F64]
"""Some boxes, (boxes, d) each."""
_NOBODY = np.zeros(0, np.int64)


class Row(NamedTuple):
    """A subscription."""

    id: Id
    arrival: int
    lo: F64
    hi: F64
    ranges: Ranges


class Entries:
    """Rows that are added and removed, and the entries that neighbours know."""

    def __init__(
        self, cells: Cells, max_ranges_per_subscription: int, discrete: Bool, *, merging: bool
    ):
        self._cells, self._max_ranges, self._discrete = cells, max_ranges_per_subscription, discrete
        self._merging = merging
        self.evaluated = 0
        """Number of entries that rows were compared with so far."""
        self._holders = Holders()
        self._rows: list[Row | None] = []
        self._inside: dict[int, I64] = {}
        """Rows inside the union of entries, with these entries."""
        self._over: dict[int, set[int]] = {}
        """The inverse: rows to check again if an entry is removed."""
        self._merged: dict[int, Bounds] = {}
        """The box of a merged entry, (1, d), by its host."""
        self._members: dict[int, set[int]] = {}
        """The rows of a merged entry, including its host, by host."""
        self._host: dict[int, int] = {}
        """The host of each member."""
        self._touched: dict[int, tuple[Row, Bounds | None]] = {}
        """Entries that neighbours had of rows before the current edit; `None`: no entry."""

    # ---- commands

    def enter(self, new: Id, arrival: int, lo: F64, hi: F64) -> int:
        """Add a subscription; return its row."""
        row, ranges = len(self._rows), self._ranges(lo, hi)
        entry = Row(new, arrival, lo, hi, ranges)
        self._rows.append(entry)
        self._touched[row] = entry, None
        self._holders.add(np.full(len(ranges), row), ranges)
        self._place_row(row)
        return row

    def leave(self, row: int) -> None:
        """Remove a subscription."""
        self._touch(row)
        self._holders.remove(row)
        self._wake(row)
        host = self._host.get(row)
        again: set[int] = set()
        if host is None:
            again = self._over.pop(row, again)
        elif self._is_redundant(row, host):
            self._members[host].remove(row)
            del self._host[row]
            if row == host:
                self._take_over(row)
        else:
            again = self._over.pop(host, set()) | self._members[host] - {row}
            self._dissolve(host)
        self._rows[row] = None
        for other in sorted(again):
            if other not in self._host:  # else one of the others was merged with it in the meantime
                self._touch(other)
                self._wake(other)
                self._place_row(other)

    def difference(self) -> Forward:
        """Return what to advertise about the rows touched by the edit, and reset them.

        New entries come first, then grown ones, then shrunk ones, as a neighbour replaces the entry
        that it has.
        """
        before: dict[Id, Bounds] = {}
        now: dict[Id, Bounds] = {}
        arrival: dict[Id, int] = {}
        for row, (entry, known) in self._touched.items():
            arrival[entry.id] = entry.arrival
            if known is not None:
                before[entry.id] = known
            known = None if self._rows[row] is None else self.known(row)
            if known is not None:
                now[entry.id] = known
        self._touched = {}

        def order(subscription: Id) -> tuple[bool, bool, int]:
            shrinks = subscription in before and not _covers(
                now[subscription], before[subscription]
            )
            return subscription in before, shrinks, arrival[subscription]

        sent = [id_ for id_ in now if id_ not in before or not _same(now[id_], before[id_])]
        gone = sorted(before.keys() - now.keys(), key=arrival.__getitem__)
        return Forward(sorted(sent, key=order), gone)

    # ---- questions

    def row(self, row: int) -> Row:
        """Return a subscription."""
        entry = self._rows[row]
        assert entry is not None
        return entry

    def known(self, row: int) -> Bounds | None:
        """Return the boxes that neighbours know for a row, if any."""
        if row in self._inside or self._host.get(row, row) != row:
            return None
        return self._entry(row)

    def candidates(self, keys: U64) -> list[int]:
        """Return the rows whose ranges contain an index of the curve, (1,)."""
        rows: list[int] = self._holders.overlapping(Ranges(keys, keys))[0].tolist()
        return rows

    def adds(self, row: int) -> bool:
        """Return whether a row isn't inside others, so that matching it is worthwhile."""
        return row not in self._inside

    @property
    def memory(self) -> int:
        """Bytes of all boxes and ranges."""
        boxes = sum(row.lo.nbytes + row.hi.nbytes for row in self._rows if row is not None)
        return boxes + self._holders.memory

    # ---- snapshots

    def arrays(self, rows: Sequence[int]) -> dict[str, AnyArray]:
        """Return rows as plain arrays, in this order."""
        positions = {row: at for at, row in enumerate(rows)}
        kept = [self.row(row) for row in rows]
        ranges = RangeSets.joined([RangeSets.single(entry.ranges) for entry in kept])
        hosts = [self._inside.get(row, _NOBODY).tolist() for row in rows]
        none = np.zeros((0, len(self._discrete)))
        return {
            "lo": np.concatenate([none, *(entry.lo for entry in kept)]),
            "hi": np.concatenate([none, *(entry.hi for entry in kept)]),
            "box_at": np.cumsum([0, *(len(entry.lo) for entry in kept)]),
            "starts": ranges.starts,
            "ends": ranges.ends,
            "range_at": ranges.offsets,
            "hosts": np.array([positions[host] for group in hosts for host in group], np.int64),
            "host_at": np.cumsum([0, *map(len, hosts)]),
            "merged_into": np.array(
                [positions.get(self._host.get(row, -1), -1) for row in rows], np.int64
            ),
        }

    def restore(self, ids: Sequence[Id], arrays: dict[str, AnyArray]) -> None:
        """Restore what `arrays` returned; rows count from 0 now."""
        ranges = RangeSets(arrays["starts"], arrays["ends"], arrays["range_at"])
        ends = arrays["box_at"].tolist()
        for row, id_ in enumerate(ids):
            own = slice(ends[row], ends[row + 1])
            self._rows.append(Row(id_, row, arrays["lo"][own], arrays["hi"][own], ranges.of(row)))
        if len(ids):
            owner = np.repeat(np.arange(len(ids)), np.diff(ranges.offsets))
            self._holders.add(owner, Ranges(ranges.starts, ranges.ends))
        ends = arrays["host_at"].tolist()
        for row in range(len(ids)):
            if ends[row] < ends[row + 1]:
                self._make_passive(row, arrays["hosts"][ends[row] : ends[row + 1]])
        for row, host in enumerate(arrays["merged_into"].tolist()):
            if host >= 0:
                self._host[row] = host
                self._members.setdefault(host, set()).add(row)
        for host, members in self._members.items():  # together they are this box, exactly
            lo = np.concatenate([self.row(member).lo for member in members])
            hi = np.concatenate([self.row(member).hi for member in members])
            self._merged[host] = lo.min(axis=0)[None], hi.max(axis=0)[None]

    # ---- inside

    def _place_row(self, row: int) -> None:
        """Decide whether a row becomes an entry, is merged, or is inside others."""
        entry = self.row(row)
        near_by = self._near(row, entry.ranges)
        inside = self._inside_of(
            (entry.lo, entry.hi), [(other, self._entry(other)) for other in near_by]
        )
        if len(inside):
            self._make_passive(row, inside)
            return
        self._withdraw_inner(row, near_by)
        while self._merging and len(entry.lo) == 1:
            lo, hi = self._entry(row)
            near_by = self._near(row, self._ranges(*widened(lo, hi, self._discrete)))
            for other in near_by:
                low, high = self._entry(other)
                if len(low) == 1:
                    box = united((lo[0], hi[0]), (low[0], high[0]), self._discrete)
                    if box is not None:
                        row = self._unite(row, other, (box[0][None], box[1][None]))
                        self._withdraw_inner(row, near_by)
                        break
            else:
                return

    def _withdraw_inner(self, row: int, others: list[int]) -> None:
        """Withdraw the other entries that lie inside an entry."""
        mine = [(row, self._entry(row))]
        for other in others:
            if other != row and self.known(other) is not None:
                inside = self._inside_of(self._entry(other), mine)
                if len(inside):
                    self._touch(other)
                    members = self._members.get(other, {other})
                    self._dissolve(other)
                    for member in sorted(members):
                        self._make_passive(member, inside)

    def _unite(self, row: int, other: int, box: Bounds) -> int:
        """Merge two entries; return the host, the one that arrived first."""
        keeps, goes = sorted((row, other), key=lambda candidate: self.row(candidate).arrival)
        self._touch(keeps)
        self._touch(goes)
        members = self._members.pop(goes, {goes})
        self._members.setdefault(keeps, {keeps}).update(members)
        self._merged.pop(goes, None)
        self._merged[keeps] = box
        self._host |= dict.fromkeys(self._members[keeps], keeps)
        self._move(goes, keeps)
        return keeps

    def _take_over(self, host: int) -> None:
        """Choose the first member as the new host of an entry whose host has left."""
        members = self._members.pop(host)
        new = min(members, key=lambda other: self.row(other).arrival)
        self._touch(new)
        self._merged[new], self._members[new] = self._merged.pop(host), members
        self._host |= dict.fromkeys(members, new)
        self._move(host, new)

    def _move(self, host: int, new: int) -> None:
        """Move the rows inside one entry to another."""
        for other in sorted(self._over.pop(host, ())):
            hosts = self._inside[other]
            self._inside[other] = np.union1d(hosts[hosts != host], [new])
            self._over.setdefault(new, set()).add(other)

    def _dissolve(self, host: int) -> None:
        """Split a merged entry into entries of its members."""
        members = self._members.get(host, set())
        for member in members:
            self._touch(member)
        for member in members:
            del self._host[member]
        self._members.pop(host, None)
        self._merged.pop(host, None)

    def _is_redundant(self, row: int, host: int) -> bool:
        """Return whether the other members of an entry contain everything that a row of it does."""
        rest = [(member, self.row(member)) for member in sorted(self._members[host] - {row})]
        mine = self.row(row)
        return len(self._inside_of((mine.lo, mine.hi), [(i, (r.lo, r.hi)) for i, r in rest])) > 0

    def _touch(self, row: int) -> None:
        """Record what neighbours knew of a row before this command."""
        if row not in self._touched:
            self._touched[row] = self.row(row), self.known(row)

    def _entry(self, row: int) -> Bounds:
        entry = self.row(row)
        return self._merged.get(row, (entry.lo, entry.hi))

    def _near(self, row: int, ranges: Ranges) -> list[int]:
        """Return the entries that may overlap ranges, other than a row's own."""
        holders, _ = self._holders.overlapping(ranges)
        hosts = {
            self._host.get(holder, holder)
            for holder in holders.tolist()
            if holder not in self._inside
        }
        near_by = sorted(hosts - {row})
        self.evaluated += len(near_by)
        return near_by

    def _ranges(self, lo: F64, hi: F64) -> Ranges:
        return range_sets(self._cells, lo, hi, np.zeros(len(lo), np.int64), self._max_ranges).of(0)

    def _make_passive(self, row: int, inside: I64) -> None:
        self._inside[row] = inside
        for other in inside.tolist():
            self._over.setdefault(other, set()).add(row)
        # Those that lay inside this one lie inside its own hosts as well.
        for other in sorted(self._over.pop(row, ())):
            hosts = self._inside[other]
            self._inside[other] = np.union1d(hosts[hosts != row], inside)
            for host in inside.tolist():
                self._over.setdefault(host, set()).add(other)

    def _wake(self, row: int) -> None:
        for other in self._inside.pop(row, _NOBODY).tolist():
            self._over.get(other, set()).discard(row)

    def _inside_of(self, boxes: Bounds, others: Sequence[tuple[int, Bounds]]) -> I64:
        """Return the others whose union contains boxes; none if it doesn't."""
        if not others:
            return _NOBODY
        used: set[int] = set()
        owner = np.concatenate([np.full(len(lo), row) for row, (lo, _) in others])
        lo = np.concatenate([lo for _, (lo, _) in others])
        hi = np.concatenate([hi for _, (_, hi) in others])
        for low, high in zip(*boxes, strict=True):
            whole = np.flatnonzero(((lo <= low) & (high <= hi)).all(axis=1))
            if len(whole):
                used.add(int(owner[whole[0]]))
                continue
            cut = cut_out(low[None], high[None], lo, hi, self._discrete)
            if cut is None:
                return _NOBODY
            used.update(owner[cut].astype(int).tolist())
        return np.array(sorted(used), np.int64)


def _same(bounds: Bounds, other: Bounds) -> bool:
    return all(map(np.array_equal, bounds, other))


def _covers(bounds: Bounds, other: Bounds) -> bool:
    """Return whether each box of `other` lies inside a box of `bounds`."""
    lo, hi = bounds
    pairs = zip(*other, strict=True)
    return all(bool(((lo <= low) & (high <= hi)).all(axis=1).any()) for low, high in pairs)
