"""Shutdown of the process within a bounded time; unfinished work is abandoned.

Everything acknowledged is in the log by then, and the next start recovers as after a `kill -9`. So
abandoned work costs time at the next start, but loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("rangecast.server")
LAST = 5.0
"""Seconds for the log, the snapshot and the threads after the connections are closed."""


def exit_after(seconds: float, what: str = "the server") -> None:
    """Exit this process after some seconds, even if threads are still running."""

    def end() -> None:
        time.sleep(seconds)
        names = sorted(thread.name for thread in threading.enumerate() if thread is not here)
        text = "%s stops after %g seconds without waiting for: %s"
        logger.warning(text, what, seconds, ", ".join(names))
        os._exit(0)

    here = threading.Thread(target=end, name="rangecast-exit", daemon=True)
    here.start()


async def in_thread(work: Callable[[], Any], name: str) -> None:
    """Run a function in a daemon thread, and wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def resolve(error: BaseException | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    def run() -> None:
        failure: BaseException | None = None
        try:
            work()
        except BaseException as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(resolve, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    await done
