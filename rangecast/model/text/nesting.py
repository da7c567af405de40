"""Nesting of text conditions, so that covering takes containment into account.

As for shapes (`rangecast.model.shapes.nesting`), a box that requires a conjunction gets one more
box for each conjunction inside it. Which pairs are compared follows from runs of up to three
characters: a condition that contains another one shares all of its own with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.attributes.residuals import FULL, Pair
from rangecast.model.space import Space
from rangecast.model.text.conditions import bounds_of
from rangecast.model.text.containment import Atom, Parts, contains, parts_of
from rangecast.model.text.forms import ADDRESS, WORDS, address_bits, fold

_GRAM = 3
_MAX_GRAMS = 16
"""Runs of characters of which the rarest one is taken."""
MAX_INSIDE = 1024
"""Conjunctions inside another one that are looked for."""
_ANYTHING = ""
"""Gram of a condition without characters of its own, such as `like '__%'`."""
_NETWORK = "\ud800"
"""Precedes the bits of a network."""
_NOT = "\ud801"
"""Precedes the gram of a negated condition: what it contains is exchanged."""


class _Words:
    """Conjunctions on one text, and which of them lie inside which."""

    def __init__(self, attribute: Patterns):
        self._attribute = attribute
        self._parts: dict[int, list[Parts]] = {}
        self._outer: dict[str, list[int]] = {}
        self._inner: dict[str, list[int]] = {}
        self.inside: dict[int, list[int]] = {}

    def add(self, number: int) -> list[tuple[int, int]]:
        """Add a conjunction; return the new pairs (outer, inner)."""
        if number in self._parts:
            return []
        literals = self._attribute.literals_in(self._attribute.literal(number))
        own = self._parts[number] = [parts_of(literal) for literal in literals]
        grams, keys = self._grams(own), self._keys(own)
        outer = {other for gram in grams for other in self._outer.get(gram, ())}
        inner = {other for key in keys for other in self._inner.get(key, ())}
        for gram in grams:
            self._inner.setdefault(gram, []).append(number)
        for key in keys:
            self._outer.setdefault(key, []).append(number)
        pairs = [(other, number) for other in sorted(outer)]
        pairs += [(number, other) for other in sorted(inner)]
        return [pair for pair in pairs if self._nest(*pair)]

    def _nest(self, outer: int, inner: int) -> bool:
        """Note a pair if one lies inside the other; return whether it does."""
        inside = self.inside.get(outer, [])
        parts, other_parts = self._parts[outer], self._parts[inner]
        if len(inside) >= MAX_INSIDE or not contains(parts, other_parts):
            return False
        if outer > inner and contains(other_parts, parts):
            return False  # of conditions that mean the same, the first one contains the others
        self.inside[outer] = [*inside, inner]
        return True

    def _keys(self, literals: list[Parts]) -> set[str]:
        """Return what all conjunctions inside have one of, as few as possible."""
        wanted = next((literal for literal in literals if not literal.negated), None)
        if wanted is not None:
            return self._literal_keys(wanted)
        return {_NOT + gram for gram in _literal_grams(literals[0])}

    def _grams(self, literals: list[Parts]) -> set[str]:
        """Return what each conjunction around has one of as a key."""
        keys: set[str] = set()
        for literal in literals:
            if literal.negated:
                keys |= {_NOT + key for key in self._literal_keys(literal)}
            else:
                keys |= _literal_grams(literal)
        return keys

    def _literal_keys(self, literal: Parts) -> set[str]:
        keys = map(self._key, sorted(literal.atoms))
        return {min(keys, key=self._uses)} if literal.every else {*keys}

    def _key(self, atom: Atom) -> str:
        if atom.form == ADDRESS:
            return _NETWORK + "".join(atom.runs())
        run = max((part for run in _folded(atom) for part in run.split()), key=len, default="")
        run = run or max(_folded(atom), key=len, default="")
        size = min(len(run), _GRAM)
        starts = range(len(run) - size + 1)[:_MAX_GRAMS]
        return min((run[at : at + size] for at in starts), key=self._uses, default=_ANYTHING)

    def _uses(self, key: str) -> int:
        return len(self._outer.get(key, ()))


def _folded(atom: Atom) -> list[str]:
    return [fold(run) for run in atom.runs()]


def _literal_grams(literal: Parts) -> set[str]:
    """Return the grams that all texts have which match a literal, without its negation."""
    atoms = literal.atoms if literal.every else [min(literal.atoms)]
    return {gram for atom in atoms for gram in _grams_of(atom)}


def _grams_of(atom: Atom) -> set[str]:
    bits = "".join(atom.runs()) if atom.form == ADDRESS else None
    grams = {_ANYTHING}
    if bits is None:
        for run in _folded(atom):
            for size in range(1, _GRAM + 1):
                grams |= {run[at : at + size] for at in range(len(run) - size + 1)}
        if atom.form != WORDS and atom.is_value:
            bits = address_bits(atom.pattern)
    if bits is not None:
        grams |= {_NETWORK + bits[:size] for size in range(1, len(bits) + 1)}
    return grams


class TextNesting:
    """Nesting of the conjunctions on the texts of a space."""

    def __init__(self, space: Space):
        self._space = space
        self.axes = list(space.patterns.values())
        self._words: dict[int, _Words] = {}
        for axis in self.axes:
            attribute = space.attributes[axis]
            assert isinstance(attribute, Patterns)
            self._words[axis] = _Words(attribute)

    @property
    def is_empty(self) -> bool:
        """Return whether no condition is known to lie inside another one."""
        return not any(words.inside for words in self._words.values())

    def add(self, lo: F64) -> list[Pair]:
        """Add the conjunctions that boxes, (boxes, d), refer to; return the new pairs."""
        made = []
        for axis, words in self._words.items():
            numbers = np.unique(np.floor(lo[np.isfinite(lo[:, axis]), axis]))
            for number in numbers.astype(np.int64).tolist():
                made += [Pair(axis, *pair) for pair in words.add(number)]
        return made

    def more_boxes(
        self, lo: F64, hi: F64, owner: I32, only: Iterable[Pair] | None = None
    ) -> list[tuple[F64, F64, int]]:
        """Return the additional boxes for conditions nested in others, and their owners.

        only   use only these pairs; by default, all known ones
        """
        inside: Mapping[int, Mapping[int, list[int]]]
        inside = {axis: words.inside for axis, words in self._words.items()}
        if only is not None:
            chosen: dict[int, dict[int, list[int]]] = {axis: {} for axis in self.axes}
            for axis, outer, inner in only:
                chosen[axis].setdefault(outer, []).append(inner)
            inside = chosen
        made = []
        for axis, pairs in inside.items():
            for box in np.flatnonzero(np.isin(lo[:, axis], list(pairs))).tolist():
                low, high = lo[box].copy(), hi[box].copy()
                self._release_order(axis, low, high)
                for inner in pairs[int(lo[box, axis])]:
                    low[axis], high[axis] = inner, inner + FULL
                    made.append((low.copy(), high.copy(), int(owner[box])))
        return made

    def _release_order(self, axis: int, low: F64, high: F64) -> None:
        """Remove the range of a box that its conjunction implies: what lies inside has its own."""
        attribute = self._space.attributes[axis]
        assert isinstance(attribute, Patterns)
        order = self._space.axis(f"{attribute.of} order")
        if bounds_of(attribute, attribute.literal(low[axis])) == (low[order], high[order]):
            low[order], high[order] = -np.inf, np.inf
