"""Edits from a server's space: before each batch, the changes since the previous batch.

A call lists the subscriptions of the space, each with the position of the edit that made it what it
is. New, changed and removed ones become a file of edits, put in place by a rename; then the
positions are kept beside it. After a crash between the two, the same edits come once more, which
changes nothing. All edits that the server had acknowledged before the call are in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.errors import FileError, UsageError
from rangecast.model.io.atomic import atomic_file

_PREFIX = "server-"
_POSITIONS = "_positions.json"
_TIMEOUT = 60.0
"""Seconds that a server may take for a page."""
_EDITS = pa.schema(
    [("id", pa.string()), ("op", pa.string()), ("filter", pa.string()), ("score", pa.float64())]
)


class ServerEdits:
    """Source of edits from a server's space; a call writes new ones to a folder.

    Ids are texts. The variable RANGECAST_TOKEN has the token, if the server asks for one.
    """

    def __init__(self, url: str, space: str, folder: Path):
        self._url = f"{url.rstrip('/')}/v1/spaces/{quote(space, safe='')}/subscriptions"
        token = os.environ.get("RANGECAST_TOKEN")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._folder = folder
        self._following = Lock()  # several streams of one process may share a set
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self) -> None:
        """Write the changes since the last call to the folder."""
        with self._following:
            self._follow()

    def _follow(self) -> None:
        before = self._positions()
        rows = {str(row["id"]): row for row in self._listed()}
        positions = {name: row["position"] for name, row in rows.items()}
        if positions == before:
            return
        known = before or {}
        gone = [_edit(name, "remove") for name in known if name not in rows]
        new = [
            _edit(name, "upsert", row["filter"], row["score"])
            for name, row in rows.items()
            if known.get(name) != row["position"]
        ]
        names = sorted(path.stem for path in self._folder.glob(f"{_PREFIX}*.parquet"))
        number = int(names[-1].removeprefix(_PREFIX)) + 1 if names else 0
        with atomic_file(self._folder / f"{_PREFIX}{number:012}.parquet") as file:
            pq.write_table(pa.Table.from_pylist([*gone, *new], _EDITS), file)
        with atomic_file(self._folder / _POSITIONS) as kept:
            kept.write(json.dumps(positions).encode())

    def _positions(self) -> dict[str, str] | None:
        """Return the position of each subscription at the last call; `None`: there was none."""
        try:
            known: dict[str, str] = json.loads((self._folder / _POSITIONS).read_bytes())
        except FileNotFoundError:
            return None
        return known

    def _listed(self) -> Iterator[dict[str, Any]]:
        """Yield all subscriptions in order of arrival."""
        after = ""
        while True:
            page = self._page(after)
            for item in page["items"]:
                if item["weights"]:
                    raise UsageError(
                        f"{self._url}: subscription {item['id']!r} has weights, which edits of a "
                        "stream don't support\n  hint: use a file of subscriptions with weights"
                    )
                yield item
            if page["next"] is None:
                return
            after = page["next"]

    def _page(self, after: str) -> Any:
        request = Request(f"{self._url}?{urlencode({'after': after})}", headers=self._headers)
        try:
            with urlopen(request, timeout=_TIMEOUT) as answer:
                return json.load(answer)
        except HTTPError as error:
            text = error.read(200).decode("utf-8", "replace")
            raise FileError(f"{self._url}: {error.code} {text}".rstrip()) from None
        except (URLError, OSError, ValueError) as error:
            raise FileError(f"{self._url}: can't be read: {error}") from None


def _edit(
    name: str, op: str, text: str | None = None, score: float | None = None
) -> dict[str, Any]:
    return {"id": name, "op": op, "filter": text, "score": score}
