"""Files of versions: one line of JSON per block, read and written in pieces."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from rangecast.server.state.versions.packed import BLOCK
from rangecast.server.state.versions.version import Version

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Version]).decode


def write_versions(path: Path, versions: Iterable[Version]) -> None:
    """Write versions durably to a new file."""
    rest = iter(versions)
    with path.open("xb") as file:
        while block := list(islice(rest, BLOCK)):
            file.write(_encode(block) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_versions(path: Path) -> Iterator[Version]:
    """Yield the versions of a file."""
    with path.open("rb") as file:
        for line in file:
            yield from _decode(line)


def digest_of(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
