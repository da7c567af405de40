"""Subscriptions given to a command: a file, a snapshot, or a folder of versions."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rangecast.cli.shared.run import Run
from rangecast.errors import FileError, UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.store.versions import Versions, has_versions, is_set, load_set


def check_version(path: Path, version: int | None) -> None:
    """Reject a version number if the subscriptions have no versions."""
    if version is not None and not has_versions(path):
        raise UsageError(
            f"--version {version} requires a folder of versions, which {path} isn't\n"
            "  hint: give such a folder, or leave out --version"
        )


def one_set(run: Run, path: Path, space: Space, version: int | None) -> tuple[Boxes, Space]:
    """Return the subscriptions of a file or a snapshot, or of a version, the newest by default."""
    check_version(path, version)
    if version is not None:
        return _checked(Versions(path).path(version), space)
    return _checked(path, space) if is_set(path) else (run.subscriptions(path, space), space)


def versions_of(
    path: Path, space: Space, numbers: Collection[int]
) -> dict[int, tuple[Boxes, Space]]:
    """Return some versions of a folder, by number."""
    versions = Versions(path)
    return {number: _checked(versions.path(number), space) for number in sorted(numbers)}


def _checked(folder: Path, space: Space) -> tuple[Boxes, Space]:
    boxes, own = load_set(folder)
    if own.definition() != space.definition():
        raise FileError(
            f"{folder}: is a snapshot of another space; pass the space that it was created with"
        )
    return boxes, own
