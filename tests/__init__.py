"""The tests. Folders mirror the package; `support` has helpers, `soak` and `tools` programs."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
