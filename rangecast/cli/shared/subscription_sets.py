"""Subscriptions given to a command: a file, a snapshot, or a folder of versions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
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


def version_as_of(path: Path, as_of: str | None) -> int | None:
    """Return the version that `--as-of` names by number or time; None: the newest, or no folder."""
    if as_of is None:
        return None
    if not has_versions(path):
        raise UsageError(
            f"--as-of {as_of} requires a folder of versions, which {path} isn't\n"
            "  hint: give such a folder, or leave out --as-of"
        )
    if as_of.isdecimal():
        return int(as_of)
    try:
        moment = datetime.fromisoformat(as_of)
    except ValueError:
        raise UsageError(
            "--as-of must be the number of a version, or an ISO 8601 timestamp such as "
            f"2026-01-31T09:30:00Z; given: {as_of}"
        ) from None
    return Versions(path).at(moment)


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
