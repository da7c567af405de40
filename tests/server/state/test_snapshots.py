"""Damaged snapshots: an earlier one or the log serves instead, or the start is rejected clearly."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rangecast.server.log.base import LogError
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer, PutSpace, PutSubscription
from rangecast.server.state.snapshots import snapshots
from tests.support.server.golden_server import write_state
from tests.support.server.serving import SPACE, T, publish, run, serving

FILTERS = {f"s{number}": f"price > {number}" for number in range(8)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two snapshots, and a log that has everything."""
    folder = tmp_path_factory.mktemp("made") / "data"

    async def work() -> None:
        service = Service(folder)
        service.start()
        await result_of(service.core.edit(PutSpace(T, "s", SPACE.definition())))
        await result_of(service.core.edit(PutConsumer(T, "out", "s")))
        for name, text in FILTERS.items():
            await result_of(service.core.edit(PutSubscription(T, name, "s", text, "out")))
            if name == "s3":
                service.core.snapshot()
            await publish(service, 5)
        service.stop()

    run(work)
    assert len(snapshots(folder)) == 2
    return folder


def copied(made: Path, tmp_path: Path) -> Path:
    shutil.rmtree(tmp_path / "data", ignore_errors=True)
    return Path(shutil.copytree(made, tmp_path / "data"))


def newest(folder: Path) -> Path:
    return folder / f"snapshot-{snapshots(folder)[-1]:020}"


def live_of(folder: Path) -> tuple[int, dict[str, str]]:
    """Return the seq of the snapshot that a start has used, and what there is then."""
    service = Service(folder)
    live = service.core.registry.space(T, "s").live
    found = service.core.snapshot_seq, {name: one.filter for name, one in live.items()}
    matched = service.core.indexes[0].match(np.array([[3.5]]))
    assert len(matched.numbers) == 4
    service.close()
    return found


def test_whole_snapshots_are_used(made: Path, tmp_path: Path) -> None:
    folder = copied(made, tmp_path)
    assert live_of(folder) == (snapshots(folder)[-1], FILTERS)


def test_a_flipped_bit_in_any_file_is_found(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(3)
    names = [one.relative_to(newest(made)) for one in newest(made).rglob("*") if one.is_file()]
    assert len(names) > 4
    for name in names:
        size = (newest(made) / name).stat().st_size
        for place in dice.sample(range(size), min(size, 6)):
            folder = copied(made, tmp_path)
            path = newest(folder) / name
            data = bytearray(path.read_bytes())
            data[place] ^= 1 << dice.randrange(8)
            path.write_bytes(data)
            caplog.clear()
            assert live_of(folder) == (snapshots(folder)[0], FILTERS), (name, place)
            assert newest(folder).name in caplog.text


def test_missing_files_and_other_contents_are_found(made: Path, tmp_path: Path) -> None:
    names = [one.relative_to(newest(made)) for one in newest(made).rglob("*") if one.is_file()]
    for name in names:
        folder = copied(made, tmp_path)
        (newest(folder) / name).unlink()
        assert live_of(folder) == (snapshots(folder)[0], FILTERS), name
    folder = copied(made, tmp_path)
    seqs = snapshots(folder)
    for part in ("state.json", "sums.json"):  # those of another snapshot
        other = folder / f"snapshot-{seqs[0]:020}" / part
        shutil.copy(other, newest(folder) / part)
    assert live_of(folder) == (seqs[0], FILTERS)


def test_a_snapshot_with_wrong_numbers_is_no_reason_to_fail(made: Path, tmp_path: Path) -> None:
    """Its checksums are right: a faulty server wrote it."""
    folder = copied(made, tmp_path)
    path = newest(folder) / "state.json"
    state: dict[str, Any] = json.loads(path.read_text())
    write_state(path, json.dumps(state))
    assert live_of(folder) == (snapshots(folder)[-1], FILTERS)  # as it was written
    consumer = state["consumers"][0]
    wrong: list[dict[str, Any]] = [
        state | {"consumer_count": 0},
        state | {"seq": state["seq"] - 1},
        state | {"chain": "00" * 16},
        state | {"chain": "zz"},
        state | {"spaces": []},
        state | {"consumers": [[*consumer[:3], ["x", "y"], *consumer[4:]]]},
        {"version": 1},
    ]
    for text in ["", "[]", "{", *map(json.dumps, wrong)]:
        write_state(path, text)
        assert live_of(folder) == (snapshots(folder)[0], FILTERS), text[:200]


def test_where_the_log_is_cut_the_reasons_are_named(made: Path, tmp_path: Path) -> None:
    async def work() -> None:
        folder = copied(made, tmp_path)
        async with serving(folder) as service:
            log: Any = service.core.log
            log._segment_bytes = 1
            await publish(service, 1)
            await publish(service, 1)
            service.core.snapshot()
            service.core.drop(log.last - 1)
            assert log.first > 1
        for seq in snapshots(folder):
            (folder / f"snapshot-{seq:020}" / "state.json").write_text("{")
        with pytest.raises(LogError, match="no snapshot has the part before") as e:
            Service(folder)
        assert str(e.value).count("state.json is damaged") == 2

    run(work)


def test_retention_relies_on_no_snapshot_that_could_not_be_read(made: Path, tmp_path: Path) -> None:
    async def work() -> None:
        folder = copied(made, tmp_path)
        for seq in snapshots(folder):
            (folder / f"snapshot-{seq:020}" / "state.json").write_text("{")
        service = Service(folder)
        assert service.core.snapshot_seq == 0
        service.start()
        service.core.snapshot()  # of the same seq as one that can't be read
        service.maintenance.stop()
        service.core.pipeline.stop()
        service.close()
        assert live_of(folder) == (snapshots(folder)[-1], FILTERS)

    run(work)


def test_after_a_failure_no_snapshot_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in memory isn't what the log says: the indexes lack what wasn't matched any more."""

    async def work() -> None:
        folder = tmp_path / "data"
        service = Service(folder)
        service.start()
        await result_of(service.core.edit(PutSpace(T, "s", SPACE.definition())))

        def fail(*_: Any) -> Any:
            raise MemoryError

        monkeypatch.setattr(service.core.pipeline.matching, "messages", fail)
        with pytest.raises(MemoryError):
            await result_of(service.core.edit(PutSubscription(T, "s0", "s", FILTERS["s0"])))
        service.stop()
        service = Service(folder)
        assert [*service.core.registry.space(T, "s").live] == ["s0"]
        assert len(service.core.indexes[0].match(np.array([[3.5]])).numbers) == 1
        service.close()
        assert snapshots(folder) == []

    run(work)
