"""A PostgreSQL server of our own for one benchmark, and the peers that ask it.

The server's files lie in a temporary folder, it listens on a socket in there and nowhere else, and
it goes away with the folder. PostgreSQL doesn't run as root: started by root, it runs as the user
`postgres` or `nobody`. Commands go through one `psql`; events and answers as binary files, so that
no time is spent on a protocol.
"""

from __future__ import annotations

import atexit
import re
import shutil
import struct
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import MatchPeer, Peer, RankPeer
from benchmarks.started import Unavailable, as_user, give, unprivileged_user
from rangecast.kernels.arrays import F64, AnyArray

_HEADER = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_SETTINGS = {
    "listen_addresses": "''",
    "fsync": "off",
    "shared_buffers": "512MB",
    "work_mem": "256MB",
    "maintenance_work_mem": "512MB",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "jit": "off",
    "max_wal_size": "8GB",
}


def _programs() -> Path | None:
    """Return the folder of initdb, pg_ctl and psql."""
    found = shutil.which("pg_config")
    folders = [Path(found).parent] if found else []
    by_version = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parent.name)
    folders += [*reversed(by_version), Path("/usr/pgsql/bin"), Path("/opt/homebrew/bin")]
    wanted = ("initdb", "pg_ctl", "psql")
    return next((f for f in folders if all((f / name).exists() for name in wanted)), None)


_GUARD = """
trap '' INT TERM HUP
read -r _
"$1" -D "$2/data" -m immediate -w stop
rm -rf "$2"
"""
"""Waits for its input to end, which it does however we end, then stops the server."""


class Server:
    """A private server that runs until the process ends."""

    def __init__(self, **settings: str) -> None:
        programs = _programs()
        if programs is None:
            raise Unavailable("no initdb, pg_ctl and psql found")
        self.programs = programs
        self.user = unprivileged_user()
        self.folder = Path(tempfile.mkdtemp(prefix="rangecast-postgres-"))
        give(self.folder, self.user)
        self.guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", str(programs / "pg_ctl"), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **as_user(self.user),
        )
        atexit.register(self.stop)
        data = str(self.folder / "data")
        self._run(
            "initdb", "-D", data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C", "-N"
        )
        chosen = _SETTINGS | settings
        options = " ".join(f"-c {name}={value}" for name, value in chosen.items())
        log = str(self.folder / "log")
        self._run(
            "pg_ctl", "-D", data, "-l", log, "-w", "-o", f"-k {self.folder} {options}", "start"
        )
        self.run("create extension if not exists cube")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            **as_user(self.user),
        )
        if done.returncode:
            raise Unavailable(f"{program} failed: {done.stderr.strip()[-300:]}")

    def session(self) -> Session:
        """Return a connection."""
        return Session(self)

    def run(self, *commands: str) -> None:
        """Run commands in a connection of their own."""
        session = self.session()
        session.run(*commands)
        session.close()

    def stop(self) -> None:
        """Stop the server and remove its files."""
        self.guard.communicate()


class Session:
    """One connection: a `psql` that is fed commands."""

    def __init__(self, server: Server):
        self.psql = subprocess.Popen(
            [
                *(str(server.programs / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"),
                *("-h", str(server.folder), "-U", "bench", "-d", "postgres"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *commands: str) -> list[str]:
        """Run commands to the end; return the lines that they print."""
        assert self.psql.stdin is not None
        assert self.psql.stdout is not None
        self.psql.stdin.write("".join(f"{one};\n" for one in commands) + "\\echo done\n")
        self.psql.stdin.flush()
        lines: list[str] = []
        for line in self.psql.stdout:
            if line == "done\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise RuntimeError("PostgreSQL: " + " ".join(lines))

    def close(self) -> None:
        """End the connection."""
        self.psql.communicate("\\q\n")


@cache
def server() -> Server:
    """Return the one server of this process, started."""
    return Server()


class OnPostgres(Peer):
    """A connection of its own, a file to hand over numbers, and the clock of both processes."""

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        folder = server().folder
        self.session = server().session()
        self.file, self.answer = (folder / f"{id(self)}.{kind}" for kind in ("copy", "answer"))
        self.backend = int(self.session.run("select pg_backend_pid()")[0])
        self.session.run("set client_min_messages = error")
        self.columns = ", ".join(
            f"{name}{j} float8" for name in ("lo", "hi") for j in range(lo.shape[1])
        )
        self._write(np.hstack([lo, hi]), np.arange(len(lo)))

    @classmethod
    def missing(cls) -> str | None:
        try:
            server()
        except Unavailable as error:
            return str(error)
        return None

    def _write(self, values: F64, ids: AnyArray) -> None:
        """Write a file of COPY's binary format: an id and some numbers per row."""
        fields = 1 + values.shape[1]
        kinds = [("fields", ">i2"), ("size", ">i4"), ("id", ">i4")]
        kinds += [p for j in range(fields - 1) for p in ((f"size{j}", ">i4"), (f"x{j}", ">f8"))]
        records = np.empty(len(values), dtype=kinds)
        records["fields"], records["size"], records["id"] = fields, 4, ids
        for j in range(fields - 1):
            records[f"size{j}"], records[f"x{j}"] = 8, values[:, j]
        self.file.write_bytes(_HEADER + records.tobytes() + _TRAILER)

    def clock(self) -> float:
        """Count the seconds of the server's process too; where nothing tells them, the wall's."""
        try:
            used = Path(f"/proc/{self.backend}/schedstat").read_text(encoding="ascii")
        except OSError:
            return time.perf_counter()
        return time.process_time() + int(used.split()[0]) / 1e9

    def close(self) -> None:
        self.session.close()
        self.file.unlink(missing_ok=True)
        self.answer.unlink(missing_ok=True)


class PostgresMatch(OnPostgres, MatchPeer):
    """PostgreSQL with a GiST index: on box in the plane, on cube beyond.

    The type box compares with a tolerance, so its candidates are checked once more.
    """

    name = "PostgreSQL GiST"

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        axes = range(lo.shape[1])
        x, low, high = (", ".join(f"{name}{j}" for j in axes) for name in ("x", "lo", "hi"))
        self.plane = lo.shape[1] == 2
        box = "box(point(lo0, lo1), point(hi0, hi1))"
        box = box if self.plane else f"cube(array[{low}], array[{high}])"
        extra = ", lo0, lo1, hi0, hi1" if self.plane else ""
        chosen = f"select id, {box} as box{extra} from given"
        self._put = f"insert into boxes {chosen}"
        self.session.run(
            f"create temp table given (id int4, {self.columns})",
            f"copy given from '{self.file}' (format binary)",
            f"create temp table boxes as {chosen}",
            "create index on boxes using gist (box)",
            "create index on boxes (id)",
            "analyze boxes",
            f"create temp table events (id int4, {', '.join(f'x{j} float8' for j in axes)})",
        )
        held = "box @> box(point(x0, x1))" if self.plane else f"box @> cube(array[{x}])"
        if self.plane:
            held += " and x0 between lo0 and hi0 and x1 between lo1 and hi1"
        self._join = f"select e.id, b.id from events e join boxes b on {held}"
        one = re.sub(r"\bx(\d+)", lambda found: f"${int(found[1]) + 1}::float8", held)
        self.session.run(f"prepare one as select id from boxes where {one}")

    def match(self, points: F64) -> Any:
        self._write(points, np.arange(len(points)))
        self.session.run(
            "truncate events",
            f"copy events from '{self.file}' (format binary)",
            "analyze events",
            f"copy ({self._join}) to '{self.answer}' (format binary)",
        )
        return self.answer.read_bytes()

    def match_one(self, point: F64) -> list[str]:
        return self.session.run(f"execute one({', '.join(map(repr, point.tolist()))})")

    def pairs(self, found: Any) -> tuple[AnyArray, AnyArray]:
        kinds = [("fields", ">i2"), ("a", ">i4"), ("event", ">i4"), ("b", ">i4"), ("row", ">i4")]
        inside = found[len(_HEADER) : len(found) - len(_TRAILER)]
        records = np.frombuffer(inside, dtype=kinds)
        return records["event"].astype(np.int64), records["row"].astype(np.int64)

    def rows(self, found: Any) -> AnyArray:
        return np.array(found, dtype=np.int64)

    def replace(self, rows: AnyArray, lo: F64, hi: F64) -> None:
        self._write(np.hstack([lo, hi]), rows)
        self.session.run(
            "truncate given",
            f"copy given from '{self.file}' (format binary)",
            "delete from boxes using given where boxes.id = given.id",
            self._put,
        )


class PostgresRank(OnPostgres, RankPeer):
    """PostgreSQL: a scan of the key's index, which stops at the limit."""

    name = "PostgreSQL, order by and limit"

    def __init__(self, lo: F64, hi: F64):
        super().__init__(lo, hi)
        held = " and ".join(
            f"lo{j} <= ${j + 1}::float8 and hi{j} >= ${j + 1}::float8" for j in range(lo.shape[1])
        )
        limit = f"${lo.shape[1] + 1}::int8"
        self.session.run(
            f"create temp table boxes (rank int4, {self.columns})",
            f"copy boxes from '{self.file}' (format binary)",
            "create index on boxes (rank)",
            "analyze boxes",
            "set enable_sort = off",
            "set enable_seqscan = off",
            f"prepare one as select rank from boxes where {held} order by rank limit {limit}",
        )

    def best_one(self, point: F64, k: int) -> AnyArray:
        given = ", ".join([*map(repr, point.tolist()), str(k)])
        return np.array(self.session.run(f"execute one({given})"), np.int64)
