"""Eleven brokers in a tree, as in Figure 1 of paper 004: watch what they tell one another.

    python examples/eleven_brokers.py covering        # or none, subsumption, merging, both

Three clients subscribe at brokers 4, 7 and 10, one of them leaves, and events are published at
broker 6. Every line is one message: an item that a neighbour is told of or that is withdrawn, or an
event. With `none` the narrow subscription of broker 7 goes all the way; with `covering` it stops
where broker 4's wider one is known, and comes out when that one leaves.
"""

from __future__ import annotations

import sys
from collections import deque

from rangecast import Integer, Space
from rangecast.merge import Cells
from rangecast.model.filters.filter import Filter
from rangecast.overlay import Broker, Settings
from rangecast.overlay.broker import ports
from rangecast.overlay.networks.tree import ELEVEN
from rangecast.overlay.wire import frames
from rangecast.overlay.wire.packing import unpack

PICTURE = """
              0
      +-------+-------+
      1       2       3
    +-+-+   +-+-+   +-+-+
    4   5   6   7   8   9
                        |
                       10
"""
SPACE = Space([Integer("price", min=0, max=255), Integer("volume", min=0, max=255)])


class Network:
    """The brokers, and a loop that is their network and their disk."""

    def __init__(self, strategy: str):
        quiet = Settings(heartbeat_interval=None, withdraw_delay=0)
        cells = Cells.uniform(SPACE, 8)
        self.items: dict[int, str] = {}
        self.messages = 0
        self.brokers = [
            Broker(str(one), SPACE, strategy=strategy, cells=cells, max_ranges=8, settings=quiet)
            for one in range(len(ELEVEN) + 1)
        ]
        for one, other in ELEVEN:
            for here, there in ((one, other), (other, one), (one, other)):
                self.do(here, ports.LinkUp(str(there)))

    def do(self, broker: int, given: ports.Input) -> None:
        """Let a broker handle an input, and everybody what comes of it."""
        todo = deque([(broker, given)])
        while todo:
            at, given = todo.popleft()
            for output in self.brokers[at].handle(0.0, given):
                match output:
                    case ports.Send(link, frame):
                        self.show(at, link, frame)
                        todo.append((int(link), ports.Received(str(at), frame)))
                    case ports.Append(place, block):
                        todo.append((at, ports.Durable(place + len(block))))
                    case ports.Deliver(_, block, matches):
                        for event, ids in zip(block.ids, matches, strict=True):
                            print(f"    broker {at} delivers {event} to {', '.join(map(str, ids))}")

    def show(self, at: int, link: str, frame: frames.Frame) -> None:
        """Say what goes over a link."""
        if isinstance(frame, frames.Interest):
            for item in frame.added:
                self.items[item.name] = text_of(item)
                print(f"    {at} -> {link}: send {self.items[item.name]}")
            for name in frame.removed:
                print(f"    {at} -> {link}: no longer {self.items[name]}")
            self.messages += len(frame.added) + len(frame.removed)
        elif isinstance(frame, frames.Events):
            print(f"    {at} -> {link}: event {', '.join(map(str, frame.ids))}")


def text_of(item: frames.Item) -> str:
    """Return what an item wants."""
    if isinstance(item, frames.RangeItem):
        return f"places {item.first} to {item.last} of the curve"
    if isinstance(item, frames.TextItem):
        return item.text
    return str(Filter(SPACE, unpack(item.boxes)))


def main(strategy: str = "covering") -> int:
    """Run the example; return how many control messages the subscriptions took."""
    print(f"Strategy: {strategy}\n{PICTURE}")
    network = Network(strategy)
    wide = "price < 128 and volume < 128"
    narrow = "price between 16 and 31 and volume < 64"
    for broker, name, text in ((4, "Ada", wide), (7, "Bob", narrow), (10, "Cleo", "price >= 200")):
        print(f"{name} subscribes at broker {broker}: {text}")
        network.do(broker, ports.Subscribe({name: text}))
    events = {"e1": (20, 30), "e2": (100, 100), "e3": (150, 9), "e4": (220, 1)}
    for event, (price, volume) in events.items():
        print(f"{event} is published at broker 6: price {price}, volume {volume}")
        network.do(6, ports.Publish([{"price": price, "volume": volume}], ids=[event]))
    subscribed = network.messages
    print(f"{subscribed} control messages so far\nAda leaves")
    network.do(4, ports.Unsubscribe(["Ada"]))
    print("e5 is published at broker 5: price 20, volume 30")
    network.do(5, ports.Publish([{"price": 20, "volume": 30}], ids=["e5"]))
    print(f"{network.messages} control messages")
    return subscribed


if __name__ == "__main__":
    main(*sys.argv[1:2])
