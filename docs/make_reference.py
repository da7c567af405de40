"""Write the generated references (Python, HTTP, command line) into a folder: `make reference`.

The folder is the first argument. `make site` puts these pages beside those of docs/reference.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docs import make_api, make_cli, make_http

PAGES = {"api.md": make_api.page, "http.md": make_http.page, "cli.md": make_cli.page}


def main(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
