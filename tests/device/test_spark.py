"""Steps of a pipeline on a device: workers open it, and write what they write without one."""

import pytest

from rangecast.device import devices
from rangecast.errors import UsageError
from rangecast.match import device as match_device
from rangecast.rank import device as rank_device
from rangecast.store.commits import read_committed
from tests.device.conftest import ON_GPU
from tests.support.cuda_emulator import EmulatedRuntime

pytest.importorskip("pyspark")
PIPELINE = """
mode = "batch"
space = "space.toml"
[[source]]
type = "files"
format = "csv"
path = "events.csv"
[[subscriptions]]
file = "subscriptions.csv"
[[step]]
type = "{step}"
{device}
[[sink]]
type = "parquet"
path = "{out}"
"""


def on_emulator(kind, boxes):
    """Return an object on the emulator, for workers: these are reused, so `cuda` stays as it is."""
    devices.DEVICES["emulator"] = EmulatedRuntime
    return kind(boxes, "emulator")


@pytest.fixture
def rows_of(spark, tmp_path):
    from rangecast.spark.stream.pipeline.pipeline import Pipeline

    rows = "".join(f"s{i},{i % 7},{i % 7 + 2},{i % 3}\n" for i in range(40))
    (tmp_path / "space.toml").write_text('[[attribute]]\nname = "x"\ntype = "number"\n')
    (tmp_path / "subscriptions.csv").write_text(f"id,x_lo,x_hi,score\n{rows}")
    (tmp_path / "events.csv").write_text("id,x\n" + "".join(f"e{i},{i / 4}\n" for i in range(40)))

    def run(step, device):
        out = f"{step}-{bool(device)}"
        (tmp_path / "p.toml").write_text(PIPELINE.format(step=step, device=device, out=out))
        Pipeline.load(tmp_path / "p.toml").run(spark)
        found = read_committed(tmp_path / out).to_table().to_pylist()
        return sorted(tuple(row.values()) for row in found)

    return run


@pytest.mark.parametrize("step", ["match", "rank"])
def test_workers_answer_on_their_device(rows_of, monkeypatch, step):
    for kind in (match_device.OnDevice, rank_device.OnDevice):
        if not ON_GPU:
            monkeypatch.setattr(kind, "__reduce__", lambda it: (on_emulator, (type(it), it.boxes)))
    found = rows_of(step, 'device = "cuda"')
    assert found == rows_of(step, "")
    assert len(found) > 40


@pytest.mark.skipif(ON_GPU, reason="workers find a GPU")
def test_a_worker_without_a_gpu_says_what_is_missing(rows_of):
    with pytest.raises(UsageError, match=r"the device 'cuda' (requires CuPy|found no GPU)"):
        rows_of("match", 'device = "cuda"')
