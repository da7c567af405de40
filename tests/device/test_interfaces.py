"""The device at the shell and in the steps of a pipeline: the same rows as on the CPU."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from rangecast.device import devices
from rangecast.errors import UsageError
from rangecast.match.answerer import MatchAnswerer
from rangecast.model.boxes import Boxes
from rangecast.rank.answerer import RankAnswerer, RankQuery
from tests.support.device_cases import hard_case

SPACE = '[[attribute]]\nname = "x"\ntype = "number"\n'


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "space.toml").write_text(SPACE)
    rows = "".join(f"s{i},x >= {i % 7} and x <= {i % 7 + 2},{i % 3}\n" for i in range(60))
    (tmp_path / "subscriptions.csv").write_text("id,filter,score\n" + rows)
    (tmp_path / "events.csv").write_text("id,x\n" + "".join(f"e{i},{i / 4}\n" for i in range(40)))
    named = [str(tmp_path / name) for name in ("events.csv", "subscriptions.csv")]
    return [*named, "--space", str(tmp_path / "space.toml")]


@pytest.mark.parametrize("command", [["match"], ["rank", "--top", "4"]])
def test_the_shell_writes_the_same_rows(cli, files, command):
    on_cpu = cli(*command, *files)
    on_gpu = cli(*command, *files, "--device", "cuda")
    assert on_gpu.stdout == on_cpu.stdout
    assert on_gpu.stdout.count("\n") > 40


def test_the_shell_says_what_does_not_go_together(cli, files, monkeypatch):
    on_gpu = *files, "--device", "cuda"
    assert "--threads" in cli("match", *on_gpu, "--threads", "2", code=2).stderr
    assert "own index" in cli("match", *on_gpu, "--index", "slabs", code=2).stderr
    assert "ranks by score" in cli("rank", *on_gpu, "--relaxed", code=2).stderr

    def missing():
        raise UsageError("the device 'cuda' found no GPU")

    monkeypatch.setitem(devices.DEVICES, "cuda", missing)
    assert "found no GPU" in cli("match", *on_gpu, code=2).stderr


def rows_of(answerer, points):
    return [
        (
            answer.first,
            answer.offsets.tolist(),
            {k: v.to_pylist() for k, v in answer.columns.items()},
        )
        for answer in answerer.answers(points)
    ]


def test_a_worker_of_spark_opens_its_own_device(monkeypatch):
    """The driver needs no GPU: what it ships opens the device where events are answered."""
    boxes, points = hard_case(41, 200, 60, 2, 2, 30)
    opened = devices.DEVICES["cuda"]
    monkeypatch.setitem(devices.DEVICES, "cuda", lambda: pytest.fail("opened by the driver"))
    matching = pickle.dumps(MatchAnswerer.of(boxes, device="cuda"))
    ranking = pickle.dumps(RankAnswerer.of(boxes, query=RankQuery(3), device="cuda"))
    monkeypatch.setitem(devices.DEVICES, "cuda", opened)
    assert rows_of(pickle.loads(matching), points) == rows_of(MatchAnswerer.of(boxes), points)
    cpu = RankAnswerer.of(boxes, query=RankQuery(3))
    assert rows_of(pickle.loads(ranking), points) == rows_of(cpu, points)
    gone = np.arange(0, boxes.rows, 2)
    parts = [each.as_part(gone) for each in (pickle.loads(ranking), cpu)]
    assert rows_of(parts[0], points) == rows_of(parts[1], points)
    dead = [each.as_part(gone) for each in (pickle.loads(matching), MatchAnswerer.of(boxes))]
    assert rows_of(dead[0], points) == rows_of(dead[1], points)


def test_names_of_devices_are_checked_where_a_step_is_made():
    boxes = Boxes.of([[0.0]], [[1.0]])
    with pytest.raises(UsageError, match="no device 'gpu'"):
        MatchAnswerer.of(boxes, device="gpu")
    with pytest.raises(UsageError, match="has its own index"):
        RankAnswerer.of(boxes, index="slabs", device="cuda")
