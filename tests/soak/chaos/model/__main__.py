"""The model's process: reads questions, a line of JSON each, and answers what is broken.

{"server": name, "data": folder, "archive": folder}
{"check": [names of servers that are down], "copy": [copy, leader], "is_whole": ...}
{"link": [home, far], "fixed": [ids], "after": seq}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.soak.chaos.model.copies import check_copy, check_link
from tests.soak.chaos.model.deliveries import Deliveries
from tests.soak.chaos.model.findings import Findings
from tests.soak.chaos.model.ledger import Ledger
from tests.soak.chaos.model.segments import LogFiles
from tests.soak.chaos.model.state import State


class Known:
    """All that is known of one server."""

    def __init__(self, data: Path, archive: Path, *, is_copy: bool):
        self.is_copy = is_copy
        self.files = LogFiles(data, archive)
        self.state = State()
        self.ledger = Ledger()
        self.deliveries = Deliveries()
        self.looks: list[dict[str, Any]] = []

    def note(self, line: dict[str, Any]) -> None:
        """Take a line of the history."""
        if line["t"] in ("op", "end"):
            self.ledger.note(line)
        elif line["t"] in ("live", "objects"):
            self.looks.append(line)
        else:
            self.deliveries.note(line)

    def check(self, findings: Findings) -> None:
        """Read the log, and compare everything with it."""
        for unit in self.files.read(findings):
            self.state.take(unit, findings)
        if findings.all or self.is_copy:
            return  # what follows from a broken log says nothing more; a copy has its leader's
        self.ledger.check(self.state, findings)
        self.deliveries.check(self.state, self.files.first, findings)
        for look in self.looks:
            self._look(look, findings)
        self.looks.clear()

    def _look(self, look: dict[str, Any], findings: Findings) -> None:
        at = look["at"]
        if look["t"] == "live":
            wanted: Any = {name: list(one) for name, one in self.state.set_at(at).items()}
            what = "live-set"
        else:
            wanted = self.state.objects_at(at, look["board"])
            what = "objects"
        given = look["items"]
        for name in sorted(wanted.keys() | given.keys()):
            if wanted.get(name) != given.get(name):
                findings.add(
                    what,
                    f"at {at} the server has {name!r} as {given.get(name)}; the log says "
                    f"{wanted.get(name)}",
                    name=name,
                )


class Model:
    """Facts about all servers of an episode."""

    def __init__(self, history: Path):
        self._history = history.open()
        self._servers: dict[str, Known] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer one question."""
        findings = Findings()
        if "server" in asked:
            folders = Path(asked["data"]), Path(asked["archive"])
            self._servers[asked["server"]] = Known(*folders, is_copy=asked["is_copy"])
            return {}
        self._read_history()
        for name in asked.get("check", ()):
            self._servers[name].check(findings)
        if "copy" in asked:
            copy, leader = (self._servers[one] for one in asked["copy"])
            check_copy(copy.files, leader.files, findings, is_whole=asked["is_whole"])
        came = 0
        if "link" in asked:
            home, far = (self._servers[one] for one in asked["link"])
            came = check_link(
                home.state,
                asked["link"][0],
                far.state,
                asked["fixed"],
                asked["after"],
                findings,
            )
        return {
            "findings": findings.all,
            "came": came,
            "last": {name: one.files.last for name, one in self._servers.items()},
            "reached": {name: one.deliveries.reached for name, one in self._servers.items()},
            "messages": sum(one.deliveries.messages for one in self._servers.values()),
            "units": sum(len(one.files.units) for one in self._servers.values()),
        }

    def _read_history(self) -> None:
        while True:
            start = self._history.tell()
            line = self._history.readline()
            if not line.endswith("\n"):
                self._history.seek(start)
                return
            found = json.loads(line)
            self._servers[found["s"]].note(found)


def main() -> None:
    """Answer questions until stdin ends."""
    sys.setrecursionlimit(50_000)  # events nest as deep as a hostile client likes
    model = Model(Path(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(model.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
