"""A line to a child process: bytes in, bytes out, and why it ended. Here the child runs on this machine."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

OnData = Callable[[bytes], None]
OnEnd = Callable[[str], None]


class Link(Protocol):
    """One child, wherever it runs. All methods belong to the event loop's thread."""

    async def start(self, command: Sequence[str], on_data: OnData, on_end: OnEnd) -> None:
        """Start the child. `on_data` gets what it writes; `on_end` is told once, with the cause. Raises OSError."""

    def write(self, data: bytes) -> None:
        """Send bytes to the child's standard input."""

    def close(self) -> None:
        """Close the child's standard input, which asks it to end."""

    def kill(self) -> None:
        """End the child at once. Safe at any time."""

    def memory_mib(self) -> float:
        """Resident memory of the child as last known; 0 where nobody tells."""


class ProcessLink(asyncio.SubprocessProtocol):
    """A child process of this one."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._transport: asyncio.SubprocessTransport | None = None
        self._pipe: asyncio.WriteTransport | None = None

    async def start(self, command: Sequence[str], on_data: OnData, on_end: OnEnd) -> None:
        self._on_data, self._on_end = on_data, on_end
        transport, _ = await asyncio.get_running_loop().subprocess_exec(lambda: self, *command, stderr=None)
        self._transport = transport
        self._pipe = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))  # uvloop has its own

    def write(self, data: bytes) -> None:
        assert self._pipe is not None, "start comes first"
        self._pipe.write(data)

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()

    def kill(self) -> None:
        if self._transport is not None and self._transport.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError):
                self._transport.kill()

    def memory_mib(self) -> float:
        return 0.0 if self._transport is None else resident_mib(self._transport.get_pid())

    # What the event loop tells

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._on_data(data)

    def process_exited(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        self._transport.close()
        self._on_end(f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}")


def resident_mib(pid: int) -> float:
    """Resident memory of a process of this machine; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0
