"""Messages that consumers got, compared with those that follow from the log."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from tests.soak.chaos.model.findings import Findings
from tests.soak.chaos.model.state import Match, State

Line = dict[str, Any]


class Deliveries:
    """Sessions of consumers: each begins at a position, and gets messages from there."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._at: dict[str, int] = {}
        """Position of each session."""
        self._consumer: dict[str, str] = {}
        self._acked: dict[str, int] = {}
        """By consumer: the highest position that was sent as an acknowledgement."""
        self._answered: dict[tuple[str, int], int] = {}
        """By consumer and life of the server: the highest acknowledgement that was answered."""
        self._gaps: list[tuple[str, int, int]] = []
        self._gap_end: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        """By consumer: how far any session got."""
        self.messages = 0

    def note(self, line: Line) -> None:
        """Take a line of the history, to be judged when the log is read."""
        self._lines.append(line)

    def check(self, state: State, first: int, findings: Findings) -> None:
        """DeliveryOracle what has come since the last check; the log begins at `first` now."""
        lines, self._lines = self._lines, []
        wanted: dict[tuple[str, int], dict[int, tuple[Match, int]]] = {}
        ordered: dict[tuple[str, int], list[int]] = {}
        for line in lines:
            if line["t"] == "ack":
                self._ack(line)
            elif line["t"] == "begin":
                self._begin(line, findings)
            else:
                consumer = self._consumer[line["session"]]
                self._gap(line, consumer, first, findings)
                key = consumer, self._gap_end.get(consumer, 0)
                if key not in wanted:
                    wanted[key] = state.wanted(*key)
                    ordered[key] = sorted(wanted[key])
                self._judge(line, consumer, wanted[key], ordered[key], state, findings)

    def _ack(self, line: Line) -> None:
        consumer = line["consumer"]
        self._acked[consumer] = max(self._acked.get(consumer, 0), line["seq"])
        if line["answered"]:
            life = consumer, line["life"]
            self._answered[life] = max(self._answered.get(life, 0), line["seq"])

    def _begin(self, line: Line, findings: Findings) -> None:
        consumer, at = line["consumer"], line["at"]
        self._at[line["session"]], self._consumer[line["session"]] = at, consumer
        if not line["is_cursor"]:
            return
        if at > self._acked.get(consumer, 0):
            findings.add(
                "cursor",
                f"{consumer} is at {at}, and acknowledged {self._acked.get(consumer, 0)} at most",
                consumer=consumer,
            )
        least = self._answered.get((consumer, line["life"]), 0)
        if at < least:
            findings.add(
                "cursor",
                f"{consumer} begins at {at}; in the same life of the server {least} was "
                "acknowledged",
                consumer=consumer,
            )

    def _gap(self, line: Line, consumer: str, first: int, findings: Findings) -> None:
        gap, session = line.get("gap"), line["session"]
        if gap is None:
            return
        after, upto = gap
        if upto >= first or after > self._at[session] or upto <= self._at[session]:
            findings.add(
                "gap",
                f"{consumer} at {self._at[session]} was told of a gap from {after} to {upto}; the "
                f"log begins at {first}",
                consumer=consumer,
            )
        self._gaps.append((consumer, after, upto))
        self._gap_end[consumer] = max(self._gap_end.get(consumer, 0), upto)
        self._at[session] = max(self._at[session], upto)

    def _judge(
        self,
        line: Line,
        consumer: str,
        wanted: dict[int, tuple[Match, int]],
        ordered: list[int],
        state: State,
        findings: Findings,
    ) -> None:
        session = line["session"]
        at = self._at[session]

        def missed(upto: int) -> list[int]:
            return ordered[bisect_right(ordered, at) : bisect_right(ordered, upto)]

        for seq, names, dropped, event in line["items"]:
            self.messages += 1
            about = {"consumer": consumer, "seq": seq}
            if seq <= at:
                findings.add("order", f"{consumer}: {seq} came after {at} in one session", **about)
                continue
            if seq not in wanted:
                is_there = seq <= state.seq
                findings.add(
                    "budget" if state.budgets.get(consumer) else "delivered",
                    f"{consumer} got {seq} for {names}: "
                    + ("the log has no such message" if is_there else "it isn't in the log"),
                    **about,
                )
                at = seq
                continue
            skipped = missed(seq - 1)
            if skipped:
                findings.add(
                    "message-lost",
                    f"{consumer} got {seq} without {skipped[:10]} before it",
                    **about,
                )
            match, wanted_dropped = wanted[seq]
            if (sorted(names), event) != (match.names, match.event):
                findings.add(
                    "matched",
                    f"{consumer} got {seq} as {event[:300]} for {sorted(names)}; the log says "
                    f"{match.event[:300]} for {match.names}",
                    **about,
                )
            if dropped != wanted_dropped:
                findings.add(
                    "budget",
                    f"{consumer}: {seq} says {dropped} were dropped, not {wanted_dropped}",
                    **about,
                )
            at = seq
        upto = line.get("upto")
        if upto is not None:
            if skipped := missed(upto):
                findings.add(
                    "message-lost",
                    f"{consumer} was told that it has all up to {upto}, without {skipped[:10]}",
                    consumer=consumer,
                    seq=skipped[0],
                )
            at = max(at, upto)
        self._at[session] = at
        self.reached[consumer] = max(self.reached.get(consumer, 0), at)
