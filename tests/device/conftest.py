import os

import pytest

from rangecast.device import devices
from tests.support.cuda_emulator import WHY_NOT, EmulatedRuntime

ON_GPU = os.environ.get("RANGECAST_TEST_GPU") == "1"
"""Whether `make gpu-test` runs the tests on a GPU."""


@pytest.fixture(autouse=True)
def emulator(monkeypatch):
    """The device `cuda` is the emulator, with as little shared memory as small GPUs have."""
    if ON_GPU:
        return devices.DEVICES["cuda"]()
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    held = EmulatedRuntime()
    monkeypatch.setitem(devices.DEVICES, "cuda", lambda: held)
    return held
