"""The subscriptions that a result is judged by: a file, a snapshot, or versions in a folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rangecast.cli.run import Run
from rangecast.errors import FileError, UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.snapshot import MANIFEST
from rangecast.model.space import Space
from rangecast.store.versions import Versions, load_set


def has_versions(path: Path) -> bool:
    """Whether a path is a folder of versions."""
    return path.is_dir() and not (path / MANIFEST).exists() and bool(Versions(path).all())


def check_version(path: Path, version: int | None) -> None:
    """Refuse a version of what has none."""
    if version is not None and not has_versions(path):
        raise UsageError(
            f"--version {version} is for a folder of versions, which {path} isn't\n"
            "  to do: give such a folder, or leave out --version"
        )


def one_set(run: Run, path: Path, space: Space, version: int | None) -> tuple[Boxes, Space]:
    """Return the subscriptions of a file or a snapshot, or of a version, the newest by default."""
    check_version(path, version)
    if has_versions(path):
        wanted = Versions(path).latest() if version is None else version
        return versions_of(path, space, [wanted])[wanted]
    if (path / MANIFEST).exists():
        return _checked(path, space)
    return run.subscriptions(path, space), space


def versions_of(
    path: Path, space: Space, numbers: Collection[int]
) -> dict[int, tuple[Boxes, Space]]:
    """Return some versions of a folder, by number."""
    versions = Versions(path)
    return {number: _checked(versions.path(number), space) for number in sorted(numbers)}


def _checked(folder: Path, space: Space) -> tuple[Boxes, Space]:
    boxes, own = load_set(folder)
    if own.definition() != space.definition():
        raise FileError(f"{folder}: is a snapshot of another space; pass the space it was made in")
    return boxes, own
