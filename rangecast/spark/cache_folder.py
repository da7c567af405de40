"""Cache folder that the Spark processes of a host share: private to each user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rangecast.errors import UsageError
from rangecast.kernels.private_folder import private_folder


def own_folder() -> Path:
    """Return the cache folder: `RANGECAST_CACHE`, or this user's in the temporary folder.

    Its files are trusted like code, so a folder that others can write to is rejected.
    """
    named = os.environ.get("RANGECAST_CACHE")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"rangecast-{os.getuid()}"
    try:
        return private_folder(folder)
    except OSError as error:
        raise UsageError(
            f"{folder}: can't be used as a cache: {error.strerror or error}; set RANGECAST_CACHE "
            "to a folder that only you can write to"
        ) from None
