"""The plain meaning of notify, in Python: lists by sorting, messages by their definition."""

from __future__ import annotations

import math
from itertools import combinations

from hypothesis import strategies as st

INF = math.inf


class Model:
    """Objects by id, as (y, arrival, id, x): they compare as they rank."""

    def __init__(self, objects=()):
        self.objects = {}
        self.arrivals = 0
        for name, x, y in objects:
            self.change(name, y, x)

    def change(self, name, y, x=None):
        known = self.objects.get(name)
        if y is None:
            del self.objects[name]
        elif known is None:
            self.objects[name] = (y, self.arrivals, name, x)
            self.arrivals += 1
        else:
            self.objects[name] = (y, known[1], name, known[3] if x is None else x)

    def inside(self, lo, hi):
        return sorted(o for o in self.objects.values() if lo <= o[3] <= hi)

    def best(self, lo, hi, k):
        return self.inside(lo, hi)[:k]

    def rank(self, name, lo, hi):
        """Return the rank of an object in a range, from 1; inf if it isn't there."""
        inside = [o[2] for o in self.inside(lo, hi)]
        return inside.index(name) + 1 if name in inside else INF


class Receivers:
    """Lists of interests on a line, kept by the messages that reach them, in plain Python."""

    def __init__(self, model, interests, k):
        self.k = k
        self.lists = {ends: [o[:3] for o in model.best(*ends, k)] for ends in interests}

    def take(self, messages):
        for message in messages:
            for (lo, hi), entries in self.lists.items():
                if not message.reaches(lo, hi):
                    continue
                entries[:] = [entry for entry in entries if entry[2] != message.object]
                if not message.is_gone:
                    entries.append((message.value, message.arrival, message.object))
                entries.sort()
                del entries[self.k :]

    def verify(self, model):
        for ends, entries in self.lists.items():
            assert entries == [o[:3] for o in model.best(*ends, self.k)], ends


class BoxModel(Model):
    """The same with places of several coordinates, and boxes for ranges."""

    def inside(self, lo, hi):
        found = self.objects.values()
        return sorted(
            o for o in found if all(a <= x <= b for a, x, b in zip(lo, o[3], hi, strict=True))
        )


def needed(before, after, names, k, lo, hi):
    """Return what an interest must hear of a batch, by the definition, in its order."""
    worse, others = [], set()
    final, original = after.best(lo, hi, k), before.best(lo, hi, k)
    for name in names:
        old, new = before.objects.get(name), after.objects.get(name)
        if old is not None and (new is None or new[:2] > old[:2]):
            rank = sum(o < old for o in after.inside(lo, hi) if o[2] != name) + 1
            if new in final or (old in original and rank <= k):
                worse.append((new[:2] if new else (INF, old[1]), name))
        elif new is not None and new != old and new in final:
            others.add(name)
    for entry in final:
        if entry[2] not in names and entry not in original:
            others.add(entry[2])
    return [name for _, name in sorted(worse, reverse=True)], others


PLACES = st.integers(0, 8).map(float)
VALUES = st.integers(0, 6).map(float)


@st.composite
def boards(draw, most_objects=8, most_interests=25):
    """Objects and interests on a small grid, so that ends, places and values meet all the time."""
    objects = [
        (name, draw(PLACES), draw(VALUES)) for name in range(draw(st.integers(0, most_objects)))
    ]
    ends = st.integers(-1, 18).map(lambda half: half / 2)
    interest = st.tuples(ends, ends).map(sorted).map(tuple)
    return objects, draw(st.lists(interest, max_size=most_interests))


@st.composite
def changes(draw, objects, most=12):
    """Changes that can be applied one after the other: updates, moves, inserts and deletes."""
    there = {name for name, _, _ in objects}
    found = []
    for _ in range(draw(st.integers(1, most))):
        name = draw(st.integers(0, 9))
        kind = draw(st.sampled_from(["update", "update", "update", "move", "delete"]))
        if name not in there:
            found.append((name, draw(VALUES), draw(PLACES)))
            there.add(name)
        elif kind == "delete":
            found.append((name, None))
            there.discard(name)
        elif kind == "move":
            found.append((name, draw(VALUES), draw(PLACES)))
        else:
            found.append((name, draw(VALUES)))
    return found


def fewest_rectangles(wanted, others):
    """Return the fewest rectangles that hold each wanted point once and no other point."""
    wanted, others = sorted(set(wanted)), set(others)
    if not wanted:
        return 0

    def allowed(group):
        l0, l1 = min(p[0] for p in group), max(p[0] for p in group)
        r0, r1 = min(p[1] for p in group), max(p[1] for p in group)

        def inside(p):
            return l0 <= p[0] <= l1 and r0 <= p[1] <= r1

        return not any(map(inside, others)), frozenset(p for p in wanted if inside(p))

    groups = set()
    for size in range(1, min(len(wanted), 4) + 1):
        # a rectangle is spanned by at most four of its points
        for group in combinations(wanted, size):
            fits, held = allowed(group)
            if fits:
                groups.add(held)
    best = {frozenset(): 0}
    goal = frozenset(wanted)
    layer = {frozenset()}
    count = 0
    while goal not in best:
        count += 1
        following = set()
        for done in layer:
            first = next(p for p in wanted if p not in done)
            for group in groups:
                if first in group and not group & done:
                    following.add(done | group)
        layer = following - set(best)
        best.update(dict.fromkeys(layer, count))
    return best[goal]
