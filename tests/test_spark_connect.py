"""Spark Connect: a server of its own, and a client that reaches it by gRPC alone."""

import subprocess
import sys

import pytest

from tests.servers import ROOT, connect_server, environment

pytestmark = pytest.mark.xdist_group("spark")

REFUSED = """
import sys
import pyarrow as pa
import pytest
from rangecast.errors import UsageError
from rangecast.spark import TopKLists, VersionedSet, run_stream, running, start
from rangecast.store import Versions
from tests.everywhere import CHECKS, EVENTS, run, space

session = start(sys.argv[1])
assert running() is session
assert start() is session
run(session, CHECKS)
stream = session.readStream.format("rate").load().selectExpr("value as id", "1.0 as price")
with pytest.raises(UsageError, match="run_stream runs in part on the driver"):
    run_stream(stream, VersionedSet(Versions(sys.argv[2]), space()), [], checkpoint=sys.argv[2])
with pytest.raises(UsageError, match="TopKLists runs in part on the driver"):
    TopKLists(session, sys.argv[2])
session.stop()
assert running() is None
"""


def test_every_step_is_right_on_connect_and_what_needs_a_driver_is_refused(tmp_path):
    with connect_server(tmp_path) as url:
        done = subprocess.run(
            [sys.executable, "-c", REFUSED, url, str(tmp_path / "folder")],
            cwd=ROOT,
            env=environment(RANGECAST_CACHE=str(tmp_path / "clients-cache")),
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    shipped = [path.name for path in (tmp_path / "servers-cache" / "snapshots").iterdir()]
    assert shipped, "the workers found what was shipped somewhere else"
