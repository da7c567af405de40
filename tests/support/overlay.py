"""A network of brokers in memory, and events and filters for it."""

from collections import deque

from rangecast import Integer, Space
from rangecast.merge import Cells
from rangecast.overlay import Broker, Settings
from rangecast.overlay.broker import ports
from rangecast.overlay.wire import frames as messages

SPACE = Space([Integer("x", min=0, max=63), Integer("y", min=0, max=63)])
QUIET = Settings(heartbeat_interval=None, withdraw_delay=0)


class Net:
    """Brokers that hear one another at once, and lose nothing."""

    def __init__(
        self, ways, strategy="covering", settings=QUIET, cells=None, spaces=None, words=None
    ):
        self.got = {}
        self.sent = []
        self.others = []
        self.brokers = {
            name: Broker(
                name,
                spaces[name] if spaces else SPACE,
                strategy=strategy,
                cells=cells or Cells.uniform(SPACE, 4),
                words=words,
                max_ranges=4,
                cover_index="scan",
                settings=settings,
            )
            for name in ways
        }
        for name, others in ways.items():
            for other in others:
                self.do(name, ports.LinkUp(other))
        for name, others in ways.items():  # no neighbour heard those that came up first
            for other in others:
                self.do(name, ports.LinkUp(other))

    def do(self, name, given, now=0.0):
        todo = deque([(name, given)])
        while todo:
            name, given = todo.popleft()
            for output in self.brokers[name].handle(now, given):
                if isinstance(output, ports.Send):
                    self.sent.append((name, output.link, output.frame))
                    frame = messages.decode(messages.encode(output.frame))
                    assert frame == output.frame
                    todo.append((output.link, ports.Received(name, frame)))
                elif isinstance(output, ports.Append):
                    todo.append((name, ports.Durable(output.at + len(output.block))))
                elif isinstance(output, ports.Deliver):
                    for event, ids in zip(output.block.ids, output.matches, strict=True):
                        self.got.setdefault(event, []).extend(ids)
                else:
                    self.others.append((name, output))
