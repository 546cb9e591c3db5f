"""Notices when the event loop stands still, which no task of it can: a thread looks, and writes down where it stood."""

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)
LIMIT_S = 1.0


@contextlib.contextmanager
def watched(blocked: Callable[[float, str], None], *, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Watch the running loop while the block lasts.

    `blocked` is told of every standstill of more than `limit_s`, once it is over: its seconds, and the stack it stood in. The
    log is told while it lasts.
    """
    loop, thread, ended = asyncio.get_running_loop(), threading.get_ident(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(loop, thread, ended, blocked, limit_s), name="watchdog", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()


def _watch(
    loop: asyncio.AbstractEventLoop, thread: int, ended: threading.Event, blocked: Callable[[float, str], None], limit_s: float
) -> None:
    while not ended.wait(limit_s / 2):
        answered, asked = threading.Event(), time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(answered.set)
        if answered.wait(limit_s) or ended.is_set():
            continue
        frame = sys._current_frames().get(thread)
        stack = "".join(traceback.format_stack(frame)[-8:])
        log.error("the event loop stands still", extra={"stack": stack})
        while not answered.wait(limit_s) and not ended.is_set():
            pass
        blocked(time.monotonic() - asked, stack)
