"""Links of a simulated network: frames arrive, or are lost, duplicated, delayed or corrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from rangecast.overlay.broker import ports
from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.simulation.hardware import Edge
from rangecast.overlay.simulation.oracle import Oracle
from rangecast.overlay.simulation.parameters import Parameters
from rangecast.overlay.wire.frames import Events, Frame, Interest, encode

_MAX_UNREAD = 4
"""Maximum times that an event may be sent to a paused broker over one connection: frames that it
sent before may still arrive, and make it seem alive.
"""


class Cabling:
    """The links of a `World`."""

    parameters: Parameters
    rng: Random
    now: float
    is_faulty: bool
    is_traced: bool
    oracle: Oracle
    near: list[list[int]]
    brokers: dict[str, Broker | None]
    edges: dict[tuple[str, str], Edge]
    extra: Edge | None
    guests: dict[str, Broker]
    """Second brokers under a name in use."""
    stopped: dict[str, list[tuple[Callable[..., None], tuple[Any, ...]]]]
    """Paused brokers, with the inputs that each gets when it resumes."""
    unread: Counter[tuple[int, str, str, int]]
    """Number of times that an event was sent to a paused broker, by connection."""

    def later(self, delay: float, act: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call after a delay."""
        raise NotImplementedError

    def trace_line(self, text: str) -> None:
        """Add a line to the trace."""
        raise NotImplementedError

    def give(self, name: str, input_: ports.Input) -> None:
        """Make a broker handle an input."""
        raise NotImplementedError

    def ask_again(self, subscription: int, name: str) -> None:
        """Make a client ask again whether its subscription has propagated."""
        raise NotImplementedError

    def waits(self, name: str, act: Callable[..., None], *arguments: Any) -> bool:
        """Return whether an input must wait because a broker is paused."""
        if name in self.stopped:
            self.stopped[name].append((act, arguments))
        return name in self.stopped

    def new_edge(self, name: str, other: str) -> Edge:
        """Add a link between two brokers, which is down."""
        edge = self.edges[name, other] = Edge((name, other))
        return edge

    def edge(self, name: str, other: str) -> Edge | None:
        return self.edges.get((name, other)) or self.edges.get((other, name))

    def join(self, edge: Edge) -> None:
        """Bring a link up."""
        if edge.is_up or self.edges.get(edge.ends) is not edge:
            return
        edge.is_up = True
        edge.session += 1
        self.trace_line(f"link {edge.ends[0]}-{edge.ends[1]} is up")
        for end in edge.ends:
            self.give(end, ports.LinkUp(edge.other(end)))

    def cut(self, edge: Edge, *, forget: bool = False) -> None:
        """Take a link down; `forget`: permanently."""
        edge.is_up = False
        edge.session += 1
        self.trace_line(f"link {edge.ends[0]}-{edge.ends[1]} is down")
        for end in edge.ends:
            self.give(end, ports.LinkDown(edge.other(end), forget=forget))

    def disconnect_impostor(self, edge: Edge) -> None:
        """End the connection of a broker that took the name of another, which comes back."""
        if edge.guest:
            self.guests.pop(edge.guest, None)
            edge.guest = ""
            if edge.is_up:
                self.cut(edge)
            self.later(1.0, self.join, edge)

    def close(self, edge: Edge | None) -> None:
        """Close a link that a broker rejects, and try again later."""
        if edge is not None:
            self.disconnect_impostor(edge)
        if edge is not None and edge.is_up and edge is not self.extra:
            self.cut(edge)
            self.later(3.0, self.join, edge)

    def remove(self, edge: Edge) -> None:
        """Remove a link of the tree permanently, which leaves two networks."""
        first, other = (int(end[1:]) for end in edge.ends)
        self.near[first].remove(other)
        self.near[other].remove(first)
        del self.edges[edge.ends]
        self.cut(edge, forget=True)
        self.oracle.parted([self.behind(end, "") for end in edge.ends])

    def add(self, name: str, other: str) -> None:
        """Join two networks by a link."""
        self.near[int(name[1:])].append(int(other[1:]))
        self.near[int(other[1:])].append(int(name[1:]))
        self.join(self.new_edge(name, other))
        self._watch(name, other)

    def _watch(self, end: str, other: str) -> None:
        """Wait until both ends have accepted a link, as an operator would; then clients ask again.

        It may be rejected while some brokers still see a cycle.
        """
        for here, there in ((end, other), (other, end)):
            broker = self.brokers[here]
            if broker is None or there not in broker.links or not broker.links[there].is_ready:
                self.later(0.5, self._watch, end, other)
                return
        self.oracle.joined()
        for subscription, name in self.oracle.live():
            self.ask_again(subscription, name)

    def drop_extra(self) -> None:
        """Remove the link that closed a cycle, as an operator would."""
        if self.extra is not None:
            del self.edges[self.extra.ends]
            edge, self.extra = self.extra, None
            self.cut(edge, forget=True)

    def transmit(self, sender: str, receiver: str, frame: Frame) -> None:
        edge = self.edge(sender, receiver)
        if edge is None or not edge.is_up or edge.guest == sender:
            return
        if receiver in self.stopped and isinstance(frame, Events):
            self._note_unread(edge, receiver, frame)
        rng, parameters = self.rng, self.parameters
        copies = 1
        data = encode(frame)
        if self.is_faulty:
            if rng.random() < parameters.drop or (edge.deaf > self.now and sender == edge.ends[0]):
                copies = 0
            elif rng.random() < parameters.double:
                copies = 2
            if rng.random() < parameters.spoil:
                data = self._corrupted(frame, data)
        if self.is_traced:
            fate = "" if copies == 1 else " (lost)" if not copies else " (twice)"
            self.trace_line(f"{sender} -> {receiver}: {frame}{fate}")
        for _ in range(copies):
            at = max(self.now + rng.uniform(0.05, parameters.delay), edge.clogged)
            if not (self.is_faulty and rng.random() < parameters.late):
                at = edge.last[sender] = max(at, edge.last.get(sender, 0.0))
            else:
                at += rng.uniform(0, 4)
            self.later(at - self.now, self._arrive, edge, edge.session, receiver, sender, data)

    def _note_unread(self, edge: Edge, receiver: str, frame: Events) -> None:
        """Verify that nothing is sent repeatedly to a broker that doesn't read."""
        for number in frame.numbers:
            key = edge.session, receiver, frame.origin, number
            self.unread[key] += 1
            if self.unread[key] > _MAX_UNREAD:
                self.oracle.wrong.append(
                    f"B1: {frame.origin}#{number} is sent to {receiver} {self.unread[key]} times, "
                    "which doesn't read"
                )

    def _corrupted(self, frame: Frame, data: bytes) -> bytes:
        """Return a frame corrupted in transit."""
        if isinstance(frame, Interest) and frame.added:
            return encode(msgspec.structs.replace(frame, added=frame.added[1:]))
        return data[: self.rng.randrange(len(data))]

    def _arrive(self, edge: Edge, session: int, receiver: str, sender: str, data: bytes) -> None:
        if session != edge.session or self.waits(
            receiver, self._arrive, edge, session, receiver, sender, data
        ):
            return
        if edge.guest == receiver:
            self.from_guest(edge, self.guests[receiver], ports.Received(sender, data))
        else:
            self.give(receiver, ports.Received(sender, data))

    def from_guest(self, edge: Edge, guest: Broker, input_: ports.Input) -> None:
        """Make a broker that impersonates another one handle an input; its output arrives."""
        other = edge.other(guest.name)
        for output in guest.handle(self.now, input_):
            if edge.guest != guest.name:
                return  # it was rejected in the meantime
            if isinstance(output, ports.Append):
                self.from_guest(edge, guest, ports.Durable(guest.log.end))
            elif isinstance(output, ports.Send):
                self.give(other, ports.Received(guest.name, encode(output.frame)))

    def behind(self, start: str, besides: str) -> list[str]:
        """Return the brokers reached over the link from one to `start`."""
        reached = [start]
        for name in reached:
            for number in self.near[int(name[1:])]:
                other = f"b{number}"
                if other != besides and other not in reached:
                    reached.append(other)
        return reached
