"""Where a host keeps what its Spark processes share: a folder per user, private to that user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rangecast.errors import UsageError
from rangecast.kernels.private_folder import private_folder


def own_folder() -> Path:
    """Return the folder: `RANGECAST_CACHE`, or one of this user's in the temporary folder.

    What lies there is loaded as code would be, so a folder that others could write is rejected.
    """
    named = os.environ.get("RANGECAST_CACHE")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"rangecast-{os.getuid()}"
    try:
        return private_folder(folder)
    except OSError as error:
        raise UsageError(
            f"{folder}: can't be used as a cache: {error.strerror or error}; set "
            "RANGECAST_CACHE to a folder that you alone can write"
        ) from None
