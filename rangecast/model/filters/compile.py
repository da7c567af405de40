"""Compiler of filters: from the tree of a filter to a region of a space.

`not` is pushed down to the conditions. A condition or its negation is a set of ranges within the
domain of its attribute, so neither ever matches a missing value.

Two things are tracked for error messages: which attribute made a part impossible, and which part
was the first to exceed the maximum number of boxes. The size of a product of alternatives is known
before it is computed, so one that is certain to be too large is never computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rangecast.errors import FilterError, InvalidValueError, SpaceError, did_you_mean
from rangecast.model.arithmetic.regions import decided, region_of_comparisons
from rangecast.model.arithmetic.syntax import read_tree
from rangecast.model.attributes.base import Attribute
from rangecast.model.attributes.numbers import MAX, read_number
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import FULL
from rangecast.model.filters.excerpts import clipped, fault
from rangecast.model.filters.grammar import Condition, Group, Node
from rangecast.model.filters.lexer import QUOTES, Word, name_of
from rangecast.model.filters.regions import (
    NULL,
    Product,
    Ranges,
    Region,
    absorbed,
    axes_of,
    boxes,
    complement,
    joined,
    meet,
    size,
    union,
)
from rangecast.model.filters.regions import common as shared
from rangecast.model.shapes.geometry import ShapeError
from rangecast.model.shapes.syntax import Call, Length, read_call, read_length
from rangecast.model.shapes.words import shape_literal
from rangecast.model.space import Space
from rangecast.model.text.regions import is_long_list, region_of_text

MAX_BOXES = 1024
ANY_BOXES = 1 << 20
"""More than a filter that was accepted comes to, whatever numbers its words have by now."""
_SLACK = 4
"""Excess over the limit at which a region is simplified and counted again."""
_WORK = 12
"""Pairs of alternatives that are tried per allowed box: most may turn out impossible."""
_COMBINATION = 4
"""Impossible pairs that cost as much as a possible one."""


@dataclass(slots=True)
class _ImpossibleCondition:
    axis: int
    node: Node


def region_of(space: Space, text: str, max_boxes: int) -> Region:
    """Compile a filter's text to boxes, each a product of single ranges."""
    tree = read_tree(text, space.names)
    reading = _Compiler(space, text, max_boxes)
    region = reading.region(tree, False)
    if not region:
        raise reading.never(tree)
    boxes = decided(space, reading.boxes(tree, region))
    if not boxes:
        raise fault(
            text,
            *tree.span,
            "this filter can never match: its arithmetic conditions contradict each other",
        )
    return boxes


class _Compiler:
    def __init__(self, space: Space, text: str, max_boxes: int):
        self.space = space
        self.text = text
        self.max_boxes = max_boxes
        # On the way there may be more boxes than at the end, however few are allowed there.
        self.room = max(max_boxes, MAX_BOXES)
        self.impossible: list[_ImpossibleCondition] = []
        self.large: FilterError | None = None
        self.work = 0

    def region(self, node: Node, negated: bool) -> Region:
        negated = negated != node.negated
        large_before = self.large
        if isinstance(node, Condition):
            if node.form == "truth":
                return [] if negated else [()]
            if node.form == "call":
                return self.shapes(node, negated)
            if node.form == "arithmetic":
                return region_of_comparisons(self.space, self.text, node, negated=negated)
            if node.form == "text":
                return region_of_text(self.space, self.text, node, negated=negated)
            axis = self.axis(node.name)
            if node.form == "equal" and is_long_list(self.space, axis, node.terms):
                return region_of_text(self.space, self.text, node, negated=negated)
            ranges = self.ranges(node, self.space.attributes[axis], negated)
            if not ranges:
                self.impossible.append(_ImpossibleCondition(axis, node))
                return []
            region: Region = [((axis, ranges),)]
            count = len(ranges)
        else:
            assert isinstance(node, Group)
            seen = len(self.impossible)
            both = (node.form == "and") != negated
            region = self.all_of(node, negated) if both else self.any_of(node, negated)
            if region:
                del self.impossible[seen:]
            count = sum([size(product) for product in region])
        if count <= self.max_boxes:
            self.large = large_before  # parts of it that were too large no longer are
        elif self.large is None:
            self.large = self.too_large(node, region)
        return region

    def part(self, node: Node, negated: bool) -> Region:
        """Compile one part of a group, and add its cost to the group's."""
        region = self.region(node, negated)
        if isinstance(node, Condition):
            return region
        self.work += _COMBINATION * max(len(region) - 1, 0)
        self.work += sum([len(ranges) - 1 for product in region for _, ranges in product])
        if self.work > self.room * _WORK:
            problem = "there are too many nested alternatives up to this point"
            raise fault(self.text, *node.span, problem, _SPLIT)
        return region

    def axis(self, word: Word) -> int:
        name = name_of(str(word))
        try:
            return self.space.axis(name)
        except SpaceError:
            problem = f"no attribute {clipped(name)!r}"
            hint = did_you_mean(name, self.space.mentionable)
            raise fault(self.text, word.start, word.end, problem, hint) from None

    def shapes(self, node: Condition, negated: bool) -> Region:
        """Return the boxes that cover the shape of a call, or the whole domain if it is negated."""
        at = node.name.start
        try:
            call = read_call(str(node.name))
            place = self.place(node, call.attribute)
            sign, length = self.length(node, call)
            literal = shape_literal(place, call, sign, length, negated=negated)
        except ShapeError as error:
            start = at + (error.at or 0)
            raise fault(self.text, start, start + 1, error.reason, error.hint) from None
        x, y = (self.space.axis(coordinate.name) for coordinate in place.coordinates)
        number = place.number(literal.text)
        place.read[literal.text] = literal
        axis = self.space.axis(place.name)
        word = axis, ((number, number),)
        if literal.negated:
            anywhere = [(axis, (self.space.attributes[axis].domain,)) for axis in (x, y)]
            return [tuple(sorted([*anywhere, word]))]
        region: Region = []
        for cell in literal.cover():
            sides = (x, cell.x0, cell.x1), (y, cell.y0, cell.y1)
            clipped = [(a, self.space.attributes[a].clip(lo, hi)) for a, lo, hi in sides]
            parts = [(axis, (range_,)) for axis, range_ in clipped if range_ is not None]
            if len(parts) == 2:
                full = axis, ((number, number + FULL),)
                region.append(tuple(sorted([*parts, full if cell.is_full else word])))
        if not region:
            self.impossible.append(_ImpossibleCondition(x, node))
        return region

    def place(self, node: Condition, name: str) -> Place:
        """Return the place attribute of a call."""
        at = node.name.start + str(node.name).find("(") + 1
        attribute = self.space.axes.get(name)
        declared = None if attribute is None else self.space.attributes[attribute]
        if isinstance(declared, Place):
            return declared
        places = [other.name for other in self.space if isinstance(other, Place)]
        if declared is not None:
            problem = f"{clipped(name)!r} is a {declared.type}, not a location or a point"
        else:
            problem = f"no attribute {clipped(name)!r}"
        hint = did_you_mean(name, places) if places else "add one to the space: type = 'location'"
        raise fault(self.text, at, node.name.end, problem, hint)

    def length(self, node: Condition, call: Call) -> tuple[str, Length | None]:
        """Return the operator and length that a call is compared with, if it needs them."""
        if (call.function == "distance") != bool(node.terms):
            problem = (
                "a distance must be compared with a length"
                if not node.terms
                else "within(...) is true or false and can't be compared"
            )
            hint = "write distance(...) < 5 km" if not node.terms else ""
            raise fault(self.text, *node.span, problem, hint)
        if not node.terms:
            return "", None
        sign, value, *unit = node.terms
        offset = value.start - node.name.start
        if value[0] in QUOTES:
            raise ShapeError("a length must be a number", offset)
        made = read_length(" ".join([str(value), *map(str, unit)]))
        return str(sign), made._replace(at=offset)

    def ranges(self, node: Condition, attribute: Attribute, negated: bool) -> Ranges:
        if node.form == "null":
            return (attribute.domain,) if negated else (NULL,)
        ranges: Ranges
        if node.form == "order":
            lo, hi = self.bounds(node.terms, attribute)
            ranges = ((lo, hi),) if lo <= hi else ()
        else:
            ranges_ = [self.equal(attribute, word) for word in node.terms]
            every = [range_ for range_ in ranges_ if range_ is not None]
            ranges = union(attribute, every) if len(every) > 1 else tuple(every)
        return complement(attribute, ranges) if negated else ranges

    def bounds(self, terms: list[Any], attribute: Attribute) -> tuple[float, float]:
        lo, hi = attribute.domain
        for sign, sign_word, word in terms:
            if not attribute.ordered:
                problem = f"{attribute.name!r} is a {attribute.type}, which has no order"
                hint = "use =, !=, in or not in"
                raise fault(self.text, sign_word.start, sign_word.end, problem, hint)
            try:
                if sign[0] == ">":
                    lo = max(lo, attribute.at_least(_value(word), strict=sign == ">"))
                else:
                    hi = min(hi, attribute.at_most(_value(word), strict=sign == "<"))
            except InvalidValueError as error:
                raise fault(self.text, word.start, word.end, error.reason) from None
        if len(terms) == 2 and terms[0][0][0] == terms[1][0][0]:
            word = terms[1][1]
            problem = "the two signs of a chain must point the same way, as in 20 <= age < 35"
            raise fault(self.text, word.start, word.end, problem)
        return lo, hi

    def equal(self, attribute: Attribute, word: Word) -> tuple[float, float] | None:
        try:
            return attribute.equal(_value(word))
        except InvalidValueError as error:
            raise fault(self.text, word.start, word.end, error.reason) from None

    def all_of(self, node: Group, negated: bool) -> Region:
        sets: dict[int, list[Ranges]] = {}
        alternatives: list[Region] = []
        alive = True
        for part in node.parts:
            region = self.part(part, negated)
            if len(region) == 1:
                for axis, ranges in region[0]:
                    sets.setdefault(axis, []).append(ranges)
            elif region:
                alternatives.append(region)
            else:
                alive = False
        certain: list[tuple[int, Ranges]] = []
        for axis in sorted(sets):
            kept = sets[axis]
            common = kept[0] if len(kept) == 1 else shared(self.space.attributes[axis], kept)
            if common:
                certain.append((axis, common))
            else:
                self.impossible.append(_ImpossibleCondition(axis, node))
                alive = False
        if not alive or not alternatives:
            return [tuple(certain)] if alive else []
        return self.multiplied(node, [tuple(certain)], alternatives)

    def multiplied(self, node: Group, region: Region, alternatives: list[Region]) -> Region:
        # Few first: what they rule out need not be multiplied.
        for choice in sorted(alternatives, key=len):
            pairs = len(region) * len(choice)
            # Without an attribute in common nothing is ruled out: the number of pairs is exact.
            unrelated = axes_of(region).isdisjoint(axes_of(choice))
            if self.work + pairs > self.room * _WORK or (unrelated and pairs > self.room):
                raise self.too_many_pairs(node, alternatives)
            survivors: Region = []
            apart_on: set[int] = set()
            for first in region:
                for second in choice:
                    both = meet(self.space.attributes, first, second)
                    if isinstance(both, int):
                        apart_on.add(both)
                    else:
                        survivors.append(both)
            self.impossible.extend(_ImpossibleCondition(axis, node) for axis in sorted(apart_on))
            # Related pairs are also compared with one another, which doubles the cost.
            self.work += pairs + _COMBINATION * len(survivors) * (1 if unrelated else 2)
            if not unrelated and len(survivors) <= self.room * _SLACK:
                survivors = absorbed(survivors)
            region = survivors
            if len(region) > self.room:
                raise self.too_many_pairs(node, alternatives)
        return region

    def any_of(self, node: Group, negated: bool) -> Region:
        every: list[Product] = []
        for part in node.parts:
            every.extend(self.part(part, negated))
        if len(every) < 2:
            return every
        region = joined(self.space.attributes, every)
        if len(region) <= self.room * _SLACK:
            region = absorbed(region)
        if len(region) > self.room:
            raise self.too_large(node, region)
        return region

    def boxes(self, tree: Node, region: Region) -> Region:
        if len(region) == 1 and size(region[0]) == 1:
            return region
        count = sum(map(size, region))
        if count <= (self.room * _SLACK if len(region) > 1 else self.max_boxes):
            region = boxes(self.space.attributes, region)
            count = len(region)
        if count > self.max_boxes:
            raise self.large or self.too_large(tree, region)
        return region

    def never(self, tree: Node) -> FilterError:
        causes = {cause.axis for cause in self.impossible}
        if len(causes) != 1:
            problem = "this filter can never match"
            if causes:
                named = [repr(self.space.names[axis]) for axis in sorted(causes)]
                more = f" and {len(named) - 3} more" if len(named) > 3 else ""
                problem += f": it fails on {', '.join(named[:3])}{more}"
            return fault(self.text, *tree.span, problem)
        cause = self.impossible[0]
        attribute = self.space.attributes[cause.axis]
        name = attribute.of or attribute.name
        problem = f"this filter can never match: no value of {name!r} satisfies it"
        lo, hi = attribute.domain
        if attribute.ordered and attribute.of is None and (lo, hi) != (-MAX, MAX):
            low = attribute.literal(lo) if lo != -MAX else "any"
            high = attribute.literal(hi) if hi != MAX else "any"
            problem += f" in its domain, {low} to {high}"
        node = cause.node if len(self.impossible) == 1 else tree
        return fault(self.text, *node.span, problem, self.swapped(node, attribute))

    def swapped(self, node: Node, attribute: Attribute) -> str:
        """Return a hint for a range with swapped bounds, if that is the only mistake."""
        if not isinstance(node, Condition) or node.form != "order" or len(node.terms) != 2:
            return ""
        low, high = sorted(node.terms, key=lambda term: term[0][0] == "<")
        turned = [(low[0], low[1], high[2]), (high[0], high[1], low[2])]
        lo, hi = self.bounds(turned, attribute)
        if lo > hi:
            return ""
        return f"the bounds are swapped: the lower one is {high[2]}, the upper one {low[2]}"

    def too_large(self, node: Node, region: Region) -> FilterError:
        count = sum(map(size, region))
        problem = (
            f"this part expands to {_number(count)} boxes, more than the {self.max_boxes:,} allowed"
        )
        worst = max(region, key=size)
        factors = [
            (len(ranges), self.space.names[axis]) for axis, ranges in worst if len(ranges) > 1
        ]
        if factors:
            shown = [f"{number:,} ranges of {name!r}" for number, name in factors[:5]]
            problem += f" ({' x '.join(shown)}{' x ...' if len(factors) > 5 else ''})"
        return fault(self.text, *node.span, problem, _SPLIT)

    def too_many_pairs(self, node: Node, alternatives: list[Region]) -> FilterError:
        counts = [len(region) for region in alternatives]
        shown = " x ".join(f"{count:,}" for count in counts[:8]) + " x ..." * (len(counts) > 8)
        total = math.prod(counts)
        problem = (
            f"this part has {shown} = {_number(total)} combinations of alternatives, "
            f"more than the {self.max_boxes:,} boxes allowed"
        )
        return fault(self.text, *node.span, problem, _SPLIT)


_SPLIT = "split the filter into several subscriptions, or raise max_boxes"


def _number(count: int) -> str:
    return f"{count:,}" if count < 10**12 else "over 10^12"


def _value(word: Word) -> object:
    """Return the value of a literal; numbers are exact."""
    if word.kind == "BOOLEAN":
        return word.lower() == "true"
    quote = word[0]
    if quote in QUOTES:
        return word[1:-1].replace(quote * 2, quote)
    return read_number(word)
