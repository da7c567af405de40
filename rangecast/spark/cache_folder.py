"""Where a host keeps what its Spark processes share: one folder a user, nobody else's to write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rangecast.errors import UsageError


def own_folder() -> Path:
    """Return the folder: `RANGECAST_CACHE`, or one of this user's in the temporary folder.

    What lies there is loaded as code would be, so a folder that others could write is refused.
    """
    named = os.environ.get("RANGECAST_CACHE")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"rangecast-{os.getuid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        seen = folder.stat()
    except OSError as error:
        raise UsageError(
            f"{folder}: can't be used for snapshots: {error.strerror}; set RANGECAST_CACHE to a "
            "folder that can be written"
        ) from None
    if seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        raise UsageError(
            f"{folder}: belongs to another user or can be written by others; remove it, or set "
            "RANGECAST_CACHE to a folder of your own"
        )
    return folder
