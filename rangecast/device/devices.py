"""Devices by name. The error for an unavailable device names the missing library or driver."""

from __future__ import annotations

from collections.abc import Callable

from rangecast.device.cupy_runtime import CupyRuntime
from rangecast.device.runtime import Runtime
from rangecast.errors import UsageError, choices_hint

DEVICES: dict[str, Callable[[], Runtime]] = {"cuda": CupyRuntime}
"""Devices by name: each returns its runtime, or raises an error that names the missing library or
driver.
"""


def check_device(device: str | None) -> None:
    """Reject an unknown device name; `None` is the CPU."""
    if device is not None and device not in DEVICES:
        raise UsageError(f"no device {device!r}: {choices_hint(device, tuple(DEVICES))}")


def check_device_index(device: str | None, index: str) -> None:
    """Reject an unknown device, and a device combined with a CPU index."""
    check_device(device)
    if device is not None and index != "auto":
        raise UsageError(f"the device {device!r} has its own index; given: index {index!r}")


def open_device(device: str) -> Runtime:
    """Return the runtime of a device."""
    check_device(device)
    return DEVICES[device]()
