"""Edits as a layer over a whole set: small to write, however large the set is.

A layer has the subscriptions that came or changed, each with the number of its arrival, and the
numbers of those that went or changed. The numbers of a whole set are its rows; a later one gets the
next number; a replaced one keeps its own. A set with layers has the rows of all of them, without
those that a later layer names as gone.

    manifest.json, *.bin    a snapshot (`model.snapshot`) of kind "layer"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import I64
from rangecast.model.boxes import Boxes
from rangecast.model.snapshot import (
    box_arrays,
    boxes_of_arrays,
    load_arrays,
    save_arrays,
)
from rangecast.model.space import Space

_KIND = "layer"
Words = dict[str, list[str]]


class Layer(NamedTuple):
    """Subscriptions added, with their arrival numbers, and those removed."""

    boxes: Boxes
    arrival: I64
    """Arrival number of each subscription, ascending."""
    gone: I64
    """Arrival numbers of removed or replaced subscriptions, ascending."""
    words: Words
    """Strings that this layer adds to those of the set below it."""
    edits: list[str]
    """Edit files that the layer was made of."""

    @property
    def size(self) -> int:
        """Number of subscriptions that the layer changes."""
        return len(self.arrival) + len(self.gone)

    def after(self, earlier: Layer) -> Layer:
        """Return one layer equivalent to an earlier layer followed by this one."""
        kept = np.flatnonzero(~np.isin(earlier.arrival, self.gone))
        boxes, arrival = in_order(
            [(earlier.boxes.take(kept), earlier.arrival[kept]), (self.boxes, self.arrival)]
        )
        words = {
            name: [*earlier.words.get(name, []), *self.words.get(name, [])]
            for name in earlier.words | self.words
        }
        gone = np.union1d(earlier.gone, self.gone)
        return Layer(boxes, arrival, gone, words, [*earlier.edits, *self.edits])

    def save(self, folder: Path) -> None:
        """Write the layer as a snapshot."""
        arrays = box_arrays(self.boxes) | {"arrival": self.arrival, "gone": self.gone}
        save_arrays(folder, _KIND, arrays, {"words": self.words, "edits": self.edits})

    @classmethod
    def load(cls, folder: Path) -> Layer:
        """Map a layer into memory."""
        arrays, meta = load_arrays(folder, _KIND)
        gone, arrival = arrays["gone"], arrays["arrival"]
        return cls(boxes_of_arrays(arrays, None), arrival, gone, meta["words"], meta["edits"])


class LayeredSet(NamedTuple):
    """A whole set and the layers over it, the oldest first."""

    base: Boxes
    layers: Sequence[Layer]
    space: Space
    """Space with the words of all layers."""

    @property
    def next_arrival(self) -> int:
        """The next arrival number."""
        latest = [int(layer.arrival[-1]) for layer in self.layers if len(layer.arrival)]
        gone = [int(layer.gone[-1]) for layer in self.layers if len(layer.gone)]
        return max(self.base.rows - 1, *latest, *gone, -1) + 1

    @property
    def id_type(self) -> pa.DataType:
        """Id type of the newest subscriptions: only an empty set may change its type."""
        nonempty = [layer.boxes for layer in self.layers if layer.boxes.rows]
        return (nonempty[-1] if nonempty else self.base).ids.type

    @property
    def rows(self) -> int:
        """Number of live subscriptions."""
        base = self.base.rows - int((self.removed_from(0) < self.base.rows).sum())
        return base + sum(
            len(layer.arrival) - int(np.isin(layer.arrival, self.removed_from(number + 1)).sum())
            for number, layer in enumerate(self.layers)
        )

    def removed_from(self, number: int) -> I64:
        """Return the arrival numbers that layer `number` and later ones remove."""
        gone = [layer.gone for layer in self.layers[number:]]
        return np.unique(np.concatenate(gone)) if gone else np.empty(0, np.int64)

    def parts(self) -> list[tuple[Boxes, I64, I64]]:
        """Return subscriptions, arrival numbers and removed ones of the base and each layer."""
        base = self.base, np.arange(self.base.rows), self.removed_from(0)
        more = [
            (layer.boxes, layer.arrival, self.removed_from(number + 1))
            for number, layer in enumerate(self.layers)
        ]
        return [base, *more]

    def whole(self) -> tuple[Boxes, I64]:
        """Return all live subscriptions in order of arrival, and their arrival numbers."""
        if not self.layers:
            return self.base, np.arange(self.base.rows)
        live = []
        for boxes, arrival, gone in self.parts():
            rows = np.flatnonzero(~np.isin(arrival, gone))
            live.append((boxes.take(rows), arrival[rows]))
        boxes, arrival = in_order(live)
        return replace(boxes, space=self.space), arrival


def in_order(parts: Sequence[tuple[Boxes, I64]]) -> tuple[Boxes, I64]:
    """Return the subscriptions of all parts as one set, in order of arrival."""
    arrival = np.concatenate([numbers for _, numbers in parts])
    filled = [boxes for boxes, _ in parts if boxes.rows]
    if not filled:
        return parts[0][0], arrival
    rows = np.cumsum([0, *(boxes.rows for boxes in filled)])
    weights: Any = None
    if any(boxes.weights is not None for boxes in filled):
        weights = np.concatenate(
            [np.ones((b.rows, b.dimensions)) if b.weights is None else b.weights for b in filled]
        )
    joined = Boxes.of(
        np.concatenate([boxes.lo for boxes in filled]),
        np.concatenate([boxes.hi for boxes in filled]),
        owner=np.concatenate([boxes.owner + row for boxes, row in zip(filled, rows, strict=False)]),
        ids=pa.concat_arrays([boxes.ids for boxes in filled]),
        scores=np.concatenate([boxes.scores for boxes in filled]),
        weights=weights,
    )
    order = np.argsort(arrival)
    return joined.take(order), arrival[order]


def with_words(space: Space, layers: Sequence[Layer]) -> Space:
    """Return a space that also has the strings of some layers."""
    if not any(layer.words for layer in layers):
        return space
    known = {
        name: [*words, *(word for layer in layers for word in layer.words.get(name, []))]
        for name, words in space.vocabularies.items()
    }
    return Space.from_definition(space.definition(), known)


def edits_of(folder: Path) -> list[str]:
    """Return the edit files that a layer was made of."""
    _, meta = load_arrays(folder, _KIND, verify=False)
    names: list[str] = meta["edits"]
    return names
