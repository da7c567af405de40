"""Batch parser of filters that consist of one polygon each."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I64, U8, Bool
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import FULL
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.lexer import name_text
from rangecast.model.filters.regions import Region, boxes, sparse
from rangecast.model.shapes.bulk import RingsRead, read_rings
from rangecast.model.shapes.words import ShapeLiteral, literal_of_ring
from rangecast.model.space import Space


def read_polygons(
    text: U8, ends: I64, raw: bytes, space: Space, lo: F64, hi: F64, good: Bool
) -> dict[int, Filter]:
    """Write the box of each text that consists of one polygon, and mark it as good.

    text, ends, raw   bytes of all texts, with the start of each and the end of the last
    good              (texts,) only texts not yet marked are read

    Returns the filters of polygons that have several boxes.
    """
    several: dict[int, Filter] = {}
    for axis, place in enumerate(space):
        if not isinstance(place, Place):
            continue
        sides = [space.axis(coordinate.name) for coordinate in place.coordinates]
        for read in read_rings(text, ends, np.flatnonzero(~good), place):
            words = _words(read, raw, ends, name_text(place.name))
            known = len(place.vocabulary)
            numbers = place.numbers(words)
            if numbers.max() >= known:
                place.batches.append((numbers, read.rings))
            small = read.is_small
            rows = read.rows[small]
            lo[rows], hi[rows] = -np.inf, np.inf
            lo[rows, axis] = hi[rows, axis] = numbers[small]
            for side, first, last in zip(sides, (0, 1), (2, 3), strict=True):
                domain = space.attributes[side].domain
                lo[rows, side] = np.maximum(read.bounds[small, first], domain[0])
                hi[rows, side] = np.minimum(read.bounds[small, last], domain[1])
            good[rows] = True
            for at in np.flatnonzero(~small).tolist():
                literal = literal_of_ring(place, words[at], read.rings, at)
                product = _product(space, place, axis, literal, float(numbers[at]))
                several[int(read.rows[at])] = product
    return several


def _words(read: RingsRead, raw: bytes, ends: I64, name: str) -> list[str]:
    """Return the canonical texts of rings."""
    words = []
    starts, stops = ends[read.rows].tolist(), ends[read.rows + 1].tolist()
    spans = zip(starts, stops, read.spans.tolist(), read.is_canonical.tolist(), strict=True)
    for start, stop, (first, last), is_canonical in spans:
        if is_canonical:
            words.append(raw[start:stop].decode())
        else:
            wkt = " ".join(raw[first:last].decode().split())
            words.append(f"within({name}, '{wkt}')")
    return words


def _product(space: Space, place: Place, axis: int, literal: ShapeLiteral, number: float) -> Filter:
    """Return the filter of a polygon that has several boxes."""
    x, y = (space.axis(coordinate.name) for coordinate in place.coordinates)
    region: Region = []
    for cell in literal.cover():
        bounds = (x, ((cell.x0, cell.x1),)), (y, ((cell.y0, cell.y1),))
        words = axis, ((number, number + FULL * cell.is_full),)
        region.append(tuple(sorted([*bounds, words])))
    return Filter(space, sparse(boxes(space.attributes, region)))
