"""A board of a service beside a board in Python: edits, updates, messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from rangecast import Arithmetic, Category, Number, Point, Space
from rangecast.notify import Board
from rangecast.server.delivery.messages import Message
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    PutBoard,
)
from tests.support.server.serving import HANGS

T, B = "default", "flats"
TOWNS = ["Arles", "Bern", "Como"]
SPACES = {
    "line": None,
    "space": Space([Number("km"), Number("m2"), Category("town", TOWNS)]),
    "upper": Space([Number("km"), Number("m2")]),
    "shapes": Space([Point("place", x="km", y="m2"), Arithmetic("sums")]),
}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, HANGS))


class Mirror:
    """A board in Python, and subscribers who apply its messages: what consumers must get."""

    def __init__(self, kind: str, seed: int):
        self.space = SPACES[kind]
        self.rng = random.Random(seed)
        self.upper = "m2" if kind == "upper" else None
        self.descending = kind == "space"
        options = {
            "space": self.space,
            "upper_bound_attribute": self.upper,
            "descending": self.descending,
        }
        self.board: Any = Board(3, **options)
        self.subscribers: dict[str, tuple[str, Any]] = {}
        self.expected: dict[str, list[tuple[int, str, Any]]] = {"one": [], "two": []}

    def made(self) -> PutBoard:
        definition = None if self.space is None else self.space.definition()
        return PutBoard(T, B, 3, definition, self.upper or "", self.descending)

    def where(self) -> dict[str, Any]:
        a, b = sorted(self.rng.choices(range(20), k=2))
        if self.space is None:
            return {
                "position_lo": self.rng.choice([a, None]),
                "position_hi": self.rng.choice([b, None]),
            }
        if self.upper:
            return {"filter": f"km between {a} and {b} and m2 <= {self.rng.randrange(20)}"}
        if "sums" in self.space.axes:
            disk = f"within(place, circle({a}, {b}, 6))"
            half = f"0.3 * km + 0.7 * m2 >= {a}"
            return {"filter": self.rng.choice([disk, half, f"{disk} or km = {b}", f"not {disk}"])}
        town = self.rng.choice(TOWNS)
        return {"filter": self.rng.choice([f"km > {a} or m2 <= {b}", f"town = '{town}'", "true"])}

    def put(self, seq: int, name: str, consumer: str, k: int, where: dict[str, Any]) -> None:
        if name in self.board:
            self.board.unsubscribe(name)
        one = self.board.subscribe(name, *where.values(), k=k or None)
        self.subscribers[name] = consumer, one
        self.note(seq, name)

    def remove(self, name: str) -> None:
        self.board.unsubscribe(name)
        del self.subscribers[name]

    def note(self, seq: int, name: str) -> None:
        consumer, one = self.subscribers[name]
        best = [{"object": e.object, "value": e.value, "position": e.position} for e in one.best]
        self.expected[consumer].append((seq, name, best))

    def change(self) -> dict[str, Any]:
        """Return a change that can be made."""
        rng, known = self.rng, list(self.board.objects)
        if known and rng.random() < 0.15:
            return {"id": rng.choice(known), "value": None}
        is_new = not known or rng.random() < 0.4
        name = f"o{rng.randrange(10**6)}" if is_new else rng.choice(known)
        found: dict[str, Any] = {"id": name}
        if is_new or rng.random() < 0.3:
            found |= self.place()
        if is_new or len(found) == 1 or rng.random() < 0.5:
            found["value"] = rng.randrange(12)
        return found

    def place(self) -> dict[str, Any]:
        if self.space is None:
            return {"position": self.rng.randrange(20)}
        values: dict[str, Any] = {"km": self.rng.randrange(20), "m2": self.rng.randrange(20)}
        if "town" in self.space.axes:
            values["town"] = self.rng.choice([*TOWNS, None])
        return values

    def apply(self, seq: int, *rows: dict[str, Any], batch: bool = False) -> None:
        changes = []
        for row in rows:
            place = {name: value for name, value in row.items() if name not in ("id", "value")}
            x = None if not place else place if self.space else place["position"]
            y = row["value"] if "value" in row else self.board.objects[row["id"]].value
            changes.append((row["id"], y, x))
        before = {name: one.best for name, (_, one) in self.subscribers.items()}
        make = self.board.update_batch if batch else self.board.update_many
        messages = list(make(changes))
        for name, (_, one) in self.subscribers.items():
            for message in messages:
                one.receive(message)
            if [e._replace(arrival=0) for e in one.best] != [
                e._replace(arrival=0) for e in before[name]
            ]:
                self.note(seq, name)


async def all_of(service: Service, consumer: str, after: int | None = None) -> list[Message]:
    listener = service.core.hub.open(service.core.registry.consumer(T, consumer), after)
    found: list[Message] = []
    while True:
        batch = await listener.next_batch(7, wait=0)
        found += batch.messages
        if not batch.messages and batch.gap is None:
            service.core.hub.close(listener)
            return found
