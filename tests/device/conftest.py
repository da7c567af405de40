import pytest

from rangecast.device import devices
from tests.support.cuda_emulator import WHY_NOT, EmulatedRuntime


@pytest.fixture(autouse=True)
def emulator(monkeypatch):
    """The device `cuda` is the emulator, with as little shared memory as small GPUs have."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    held = EmulatedRuntime()
    monkeypatch.setitem(devices.DEVICES, "cuda", lambda: held)
    return held
