"""Whole histories against the oracle of tracks, through a server that is restarted in between."""

import json
import shutil
from pathlib import Path

import pytest

from rangecast.server.service import Service
from rangecast.server.verify.deliveries import verify_deliveries
from rangecast.server.verify.tracks import _Space
from rangecast.track.transitions import Transitions
from tests.support.server.service import all_of, run
from tests.support.server.tracks import EagerOracle, prepared, row_of, settled, taken
from tests.support.track_model import Row, by_key, history_of


async def transitions(history, folder: Path) -> list[Row]:
    """Return what a consumer gets; at each save the server is restarted, with and without the
    snapshot that it leaves.
    """
    service = Service(folder, durability="none")
    service.start()
    await prepared(service, history)
    for place, step in enumerate(history.steps):
        if step.do == "save":
            service.stop()
            if place % 2:
                for one in folder.glob("snapshot-*"):
                    shutil.rmtree(one)
            service = Service(folder, durability="none")
            service.start()
        await taken(service, history, step)
    await settled(service)
    messages = await all_of(service, "one", 0)
    service.stop()
    delivered = folder.parent / f"{folder.name}.jsonl"
    delivered.write_bytes(b"".join(message.json("e") + b"\n" for message in messages))
    report = verify_deliveries(folder, "default", "one", delivered)
    assert report.holds, report.samples
    assert report.expected == len(messages)
    found = [row_of(message) for message in messages]
    assert len({name for name, _ in found}) == len(found)
    return [row for _, row in found]


def compare(seed: int, folder: Path) -> None:
    history = history_of(seed)
    expected = by_key([row._replace(number=0) for row in EagerOracle(history).run()])

    async def work() -> None:
        assert by_key(await transitions(history, folder)) == expected, f"seed {seed}"

    run(work())


def test_a_server_finds_what_the_oracle_finds(tmp_path: Path):
    for seed in range(12):
        compare(seed, tmp_path / f"{seed}")


def test_verification_finds_a_transition_that_lacks_or_differs(tmp_path: Path):
    history, folder = history_of(8), tmp_path / "8"

    async def work() -> None:
        assert await transitions(history, folder)

    run(work())
    delivered = tmp_path / "8.jsonl"
    first, *others = delivered.read_text().splitlines()
    delivered.write_text("\n".join(others))
    assert verify_deliveries(folder, "default", "one", delivered).missing == 1
    other = json.loads(first) | {"id": "another"}
    delivered.write_text("\n".join([json.dumps(other), *others]))
    assert verify_deliveries(folder, "default", "one", delivered).differing == 1
    with pytest.MonkeyPatch.context() as patched:  # a tracker that finds something else
        patched.setattr(_Space, "event", lambda *_: Transitions.none())
        delivered.write_text("\n".join([first, *others]))
        report = verify_deliveries(folder, "default", "one", delivered)
    assert report.extra > 0


@pytest.mark.soak
def test_many_histories(tmp_path: Path):
    for seed in range(300, 600):
        compare(seed, tmp_path / f"{seed}")
