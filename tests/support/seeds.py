"""Seeds of tests that draw their data: a few in the suite, the rest in make test-soak."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(suite: int, soak: int) -> list[Any]:
    """Return parameters from 0 to before `soak`; those from `suite` on are marked soak."""
    return [
        pytest.param(seed, marks=[pytest.mark.soak] if seed >= suite else [])
        for seed in range(soak)
    ]
