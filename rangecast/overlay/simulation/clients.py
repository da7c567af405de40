"""Clients of a simulated network; their actions are drawn by its seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.model.filters.filter import Filter
from rangecast.model.sets.members import Id
from rangecast.overlay.broker import ports
from rangecast.overlay.simulation.parameters import SIDE, plain_space
from rangecast.overlay.simulation.world import World


class Clients:
    """Clients that subscribe, unsubscribe, replace filters and publish."""

    def __init__(self, world: World):
        self._world = world
        self._next_id = self._next_event = 0
        self._filters = self._pool()

    def _pool(self) -> list[Any]:
        """Return a small pool of filters of all sizes, so that many are equal or cover others."""
        texts = []
        for _ in range(10):
            terms = []
            for name in "xy":
                size = self._world.rng.choice([0, 1, 3, 6, 12])
                low = self._world.rng.randrange(SIDE - size)
                if self._world.rng.random() < 0.85:
                    terms.append(f"{name} between {low} and {low + size}")
            if self._world.parameters.strings and self._world.rng.random() < 0.5:
                words = self._world.rng.sample(["a", "b", "c", "d"], self._world.rng.choice([1, 2]))
                listed = ", ".join(f"'{word}'" for word in words)
                terms.append(f"word {self._world.rng.choice(['in', 'not in'])} ({listed})")
            texts.append(" and ".join(terms) or "x >= 0")
        if self._world.parameters.strings:
            return texts
        return [Filter.parse(text, plain_space()) for text in texts]

    def act(self) -> None:
        """Perform a random client operation: publish, subscribe, unsubscribe or replace."""
        rng = self._world.rng
        live = self._world.oracle.live()
        kind = rng.random()
        if kind < 0.45:
            self.publish(f"b{rng.randrange(self._world.parameters.brokers)}")
        elif kind < 0.70 or not live:
            self._next_id += 1
            name = f"b{rng.randrange(self._world.parameters.brokers)}"
            self._world.client(name, ports.Subscribe({self._next_id: rng.choice(self._filters)}))
        else:
            id_, name = rng.choice(live)
            if kind < 0.9:
                if rng.random() < 0.5:  # one that probably covers others
                    id_, name = max(live, key=self._size)
                self._world.client(name, ports.Unsubscribe([id_]))
                # It is advertised after a while: publish just then.
                settings, delay = self._world.parameters.settings, self._world.parameters.delay
                after = max(settings.withdraw_delay, settings.batch_delay)
                for _ in range(rng.choice([4, 8, 16])):
                    other = f"b{rng.randrange(self._world.parameters.brokers)}"
                    self._world.later(after + rng.uniform(0, 1.5 * delay), self.publish, other)
            else:
                self._world.client(name, ports.Replace({id_: rng.choice(self._filters)}))

    def _size(self, live: tuple[int, str]) -> float:
        """Return the approximate size of a subscription."""
        text = self._world.disks[live[1]].subscriptions[live[0]]
        if not isinstance(text, Filter):
            return 0.0
        return -sum(1 / (1 + hi - lo) for box in text.boxes for _, lo, hi in box)

    def publish(self, name: str) -> None:
        rng = self._world.rng
        count = rng.choice([1, 1, 1, 3])
        points = [self._point() for _ in range(count)]
        ids: list[Id] = [*range(self._next_event, self._next_event + count)]
        self._next_event += count
        if not self._world.parameters.strings:
            ranked = self._world.parameters.settings.max_waiting is not None
            priorities = [rng.choice([0.0, 1.0, 2.0]) for _ in points] if ranked else []
            coordinates = np.array(points, np.float64)
            self._world.client(name, ports.Publish(coordinates, ids, priorities=priorities))
            return
        words = [rng.choice(["a", "b", "c", "d", "e"]) for _ in points]
        events = [
            {"x": x, "y": y, "word": word} for (x, y), word in zip(points, words, strict=True)
        ]
        self._world.client(name, ports.Publish(events, ids))

    def _point(self) -> list[int]:
        """Return a point, mostly one that matches a subscription."""
        rng, live = self._world.rng, self._world.oracle.live()
        point = [rng.randrange(SIDE), rng.randrange(SIDE)]
        if live and rng.random() < 0.7:
            id_, name = rng.choice(live)
            text = self._world.disks[name].subscriptions[id_]
            if isinstance(text, Filter):
                for axis, lo, hi in rng.choice(text.boxes):
                    point[axis] = rng.randint(int(lo), int(hi))
        return point
