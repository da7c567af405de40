"""A board, by sorting all objects after every change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

List = list[tuple[str, float, float]]


class BoardState:
    """Objects and interests of a board: the k of the lowest value in a range of x."""

    def __init__(self, k: int):
        self.k = k
        self.objects: dict[str, tuple[float, float, int]] = {}
        """Value, place, and the seq that put it there."""
        self.interests: dict[str, dict[str, Any]] = {}

    def best(self, interest: dict[str, Any]) -> List:
        """Return the list of an interest: (object, y, x)."""
        lo, hi = interest.get("position_lo"), interest.get("position_hi")
        inside = [
            (y, arrival, name, x)
            for name, (y, x, arrival) in self.objects.items()
            if (lo is None or x >= lo) and (hi is None or x <= hi)
        ]
        k = interest.get("k") or self.k
        return [(name, y, x) for y, _, name, x in sorted(inside)[:k]]

    def put(self, edit: dict[str, Any]) -> Iterator[tuple[str, dict[str, List]]]:
        """Put an interest; yield the consumer and the list that it gets."""
        self.interests[edit["name"]] = edit
        if edit.get("consumer"):
            yield edit["consumer"], {edit["name"]: self.best(edit)}

    def update(
        self, changes: list[dict[str, Any]], first: int, *, is_batch: bool
    ) -> Iterator[tuple[int, str, dict[str, List]]]:
        """Carry out changes; yield seq, consumer and lists of each message."""
        steps = [(first + at, [one]) for at, one in enumerate(changes)]
        if is_batch:
            steps = [(first + len(changes) - 1, changes)]
        for seq, some in steps:
            before = {name: self.best(one) for name, one in self.interests.items()}
            for change in some:
                self._change(change, seq)
            by_consumer: dict[str, dict[str, List]] = {}
            for name, one in self.interests.items():
                now = self.best(one)
                if now != before[name] and one.get("consumer"):
                    by_consumer.setdefault(one["consumer"], {})[name] = now
            for consumer, lists in by_consumer.items():
                yield seq, consumer, lists

    def _change(self, change: dict[str, Any], seq: int) -> None:
        name = change["id"]
        if "value" in change and change["value"] is None:
            del self.objects[name]
            return
        y, x, arrival = self.objects.get(name, (0.0, 0.0, seq))
        self.objects[name] = change.get("value", y), change.get("position", x), arrival
