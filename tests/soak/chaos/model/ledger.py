"""Requests of clients and their answers, compared with the log.

An op is one thing that a client wants; it may ask several times. Of each attempt the outcome is
`ok` (acknowledged), `rejected`, or `unknown`: no answer, or one that doesn't say.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.soak.chaos.model.findings import Findings
from tests.soak.chaos.model.state import State

Op = dict[str, Any]


class Ledger:
    """All ops, and the ends of their attempts."""

    def __init__(self) -> None:
        self.ops: dict[int, Op] = {}
        self.ends: dict[int, list[Op]] = {}

    def note(self, line: Op) -> None:
        """Take a line of the history."""
        if line["t"] == "op":
            self.ops[line["n"]] = line
        else:
            self.ends.setdefault(line["n"], []).append(line)

    def outcomes(self, op: Op, row: int = -1) -> list[str]:
        """Return what is known of each attempt, for one row of several."""
        ends = self.ends.get(op["n"], [])
        found = [
            "rejected"
            if one["outcome"] == "ok" and row in one.get("rejected", ())
            else one["outcome"]
            for one in ends
        ]
        return found + ["unknown"] * (op.get("attempts", 1) - len(ends))

    def check(self, state: State, findings: Findings) -> None:
        """Compare all of it with the log."""
        self._check_events(state, findings)
        self._check_named(state, findings)
        self._check_removals(state, findings)
        for op in self.ops.values():
            for end in self.ends.get(op["n"], ()):
                if end["outcome"] == "ok":
                    self._check_answer(op, end, state, findings)

    def _check_events(self, state: State, findings: Findings) -> None:
        known: dict[str, tuple[list[str], list[int]]] = {}
        given: dict[str, dict[str, Any]] = {}
        for op in self.ops.values():
            for row, (key, values) in enumerate(op.get("events", ())):
                outcomes, ops = known.setdefault(key, ([], []))
                outcomes += self.outcomes(op, row)
                ops.append(op["n"])
                given[key] = values
        for key, (outcomes, ops) in known.items():
            _judge("event", key, outcomes, ops, state.places.get(key, []), findings)
        for key, seqs in state.places.items():
            for seq in seqs:
                event = state.events[seq]
                if event.origin:
                    continue
                if key not in known:
                    findings.add("from-nowhere", f"no client sent the event {key[:80]} at {seq}")
                elif any(event.values.get(name) != one for name, one in given[key].items()):
                    findings.add(
                        "altered", f"the event {key} at {seq} is {event.values}", ops=known[key][1]
                    )

    def _check_named(self, state: State, findings: Findings) -> None:
        """Compare subscriptions, interests and values of objects, each of which is put once."""
        places: dict[Any, list[int]] = {}
        for seq, edit in state.edits.items():
            if edit["op"] == "subscribe":
                places.setdefault(("put", edit["filter"]), []).append(seq)
            elif edit["op"] == "put-interest":
                places.setdefault(("interest", edit["name"], edit.get("position_lo")), []).append(
                    seq
                )
        for seq, change in state.updates.items():
            if change.get("value") is not None:
                places.setdefault(("change", change["id"], change["value"]), []).append(seq)
        known = set()
        for op in self.ops.values():
            for row, key in enumerate(_keys(op)):
                known.add(key)
                outcomes = self.outcomes(op, row)
                _judge(
                    key[0], str(key[1:])[:120], outcomes, [op["n"]], places.get(key, []), findings
                )
        for key, seqs in places.items():
            if key not in known:
                findings.add("from-nowhere", f"no client asked for {str(key)[:120]} at {seqs[0]}")

    def _check_removals(self, state: State, findings: Findings) -> None:
        """Compare how often names were removed: a removal has nothing else to tell it by."""
        written: Counter[tuple[str, str]] = Counter()
        for edit in state.edits.values():
            if edit["op"] == "unsubscribe" and not edit.get("was_expiring"):
                written["delete", edit["name"]] += 1
        for change in state.updates.values():
            if "value" in change and change["value"] is None:
                written["remove", change["id"]] += 1
        least: Counter[tuple[str, str]] = Counter()
        most: Counter[tuple[str, str]] = Counter()
        for op in self.ops.values():
            for row, key in _removals(op):
                outcomes = self.outcomes(op, row)
                least[key] += "ok" in outcomes
                most[key] += set(outcomes) != {"rejected"}
        for key in written.keys() | least.keys():
            if written[key] < least[key]:
                promise = "acknowledged-lost"
            elif written[key] > most[key]:
                promise = "rejected-written"
            else:
                continue
            findings.add(
                promise,
                f"{key[0]} of {key[1]!r}: {least[key]} acknowledged, {most[key]} possible, "
                f"{written[key]} in the log",
                name=key[1],
            )

    def _check_answer(self, op: Op, end: Op, state: State, findings: Findings) -> None:
        """Compare the seqs of an answer with what the log has there."""
        first, count = end.get("first"), end.get("count", 1)
        if first is None:
            return
        seqs = range(first, first + count)
        if seqs and seqs[-1] > state.seq:
            findings.add(
                "acknowledged-lost",
                f"op {op['n']} was answered {'repeated ' if end.get('repeated') else ''}with seqs "
                f"{first} to {seqs[-1]}; the log ends at {state.seq}",
                ops=[op["n"]],
            )
            return
        if op["kind"] == "events":
            rows = [key for at, (key, _) in enumerate(op["events"]) if at not in end["rejected"]]
            here = [state.events[seq].key if seq in state.events else "" for seq in seqs]
            is_right = here == rows if not end.get("skipped") else _is_part(here, rows)
            for seq, names in zip(seqs, end.get("matches") or (), strict=False):
                if is_right and sorted(names) != state.events[seq].matched:
                    findings.add(
                        "matched",
                        f"op {op['n']}: the event at {seq} was answered with the matches "
                        f"{sorted(names)}; the log says {state.events[seq].matched}",
                        ops=[op["n"]],
                        seq=seq,
                    )
        else:
            here = [_key_at(state, seq) for seq in seqs]
            wanted = [*_keys(op), *(key for _, key in _removals(op))]
            is_right = all(one in wanted for one in here)
        if not is_right:
            findings.add(
                "answered-seq",
                f"op {op['n']} ({op['kind']}) was answered with seq {first}, where the log has "
                f"{str(here)[:300]}",
                ops=[op["n"]],
                seq=first,
            )


def _judge(
    what: str, key: str, outcomes: list[str], ops: list[int], seqs: list[int], findings: Findings
) -> None:
    if len(seqs) > 1:
        findings.add("written-twice", f"the {what} {key} is in the log at {seqs}", ops=ops)
    elif not seqs and "ok" in outcomes:
        findings.add("acknowledged-lost", f"the {what} {key} isn't in the log", ops=ops)
    elif seqs and set(outcomes) == {"rejected"}:
        findings.add("rejected-written", f"the {what} {key} is in the log at {seqs}", ops=ops)


def _keys(op: Op) -> list[tuple[Any, ...]]:
    """Return what tells the things that an op puts, row by row."""
    if op["kind"] == "put":
        return [("put", one["filter"]) for one in op["puts"]]
    if op["kind"] == "interest":
        return [("interest", op["name"], op["position_lo"])]
    if op["kind"] == "updates":
        return [("change", one["id"], one["value"]) for one in op["changes"]]
    return []


def _removals(op: Op) -> list[tuple[int, tuple[str, str]]]:
    if op["kind"] == "delete":
        return [(0, ("delete", op["name"]))]
    if op["kind"] == "remove":
        return [(0, ("remove", op["name"]))]
    return []


def _key_at(state: State, seq: int) -> tuple[Any, ...] | None:
    edit, change = state.edits.get(seq), state.updates.get(seq)
    if change is not None:
        if change.get("value") is None:
            return "remove", change["id"]
        return "change", change["id"], change["value"]
    if edit is None:
        return None
    if edit["op"] == "subscribe":
        return "put", edit["filter"]
    if edit["op"] == "put-interest":
        return "interest", edit["name"], edit.get("position_lo")
    return ("delete", edit["name"]) if edit["op"] == "unsubscribe" else None


def _is_part(some: list[str], whole: list[str]) -> bool:
    """Return whether `some` are keys of `whole`, in the same order."""
    left = iter(whole)
    return all(one in left for one in some)


def text_of(values: Any) -> str:
    """Return the key of an event's id."""
    return json.dumps(values)
