"""Files of versions: one line of JSON per block, read and written in pieces."""

from __future__ import annotations

import hashlib
import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from rangecast.server.state.versions.live import LiveVersions
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


def restore_versions(
    path: Path, live: LiveVersions, others: Sequence[Version]
) -> Iterator[tuple[int, Sequence[Version]]]:
    """Add the versions of a file, if there is one, and others; yield blocks, by birth.

    With each comes the place of its first version. Without others, blocks are packed as they are.
    """
    lines = _lines(path) if path.exists() else iter(())
    if not others:
        for line in lines:
            block = _decode(line)
            yield live.restore(block, line), block
        return
    saved = (version for line in lines for version in _decode(line))
    by_birth = heapq.merge(saved, sorted(others, key=_born), key=_born)
    while block := list(islice(by_birth, BLOCK)):
        yield live.restore(block), block


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            yield line.rstrip(b"\n")


def _born(version: Version) -> int:
    return version.born


def digest_of(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
