"""Number of examples that Hypothesis draws: all nightly (`make test-soak`), else a share."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

NIGHTLY = 100
"""The examples of a property that asks for no other number, in the profile "soak"."""


def examples(nightly: int, **options: Any) -> settings:
    """Return settings with as many examples, or with the share of them that the profile draws."""
    share = min(1.0, settings.default.max_examples / NIGHTLY)
    return settings(max_examples=max(5, round(nightly * share)), **options)
