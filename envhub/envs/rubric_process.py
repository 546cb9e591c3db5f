"""A rubric part in a process of its own: what hangs is killed, what eats memory dies, and what it breaks is its own.

The function is named "module:function" or "file.py:function", takes a `Graded` and gives a number, or several by name. The
process has no secrets in its environment, limits on memory, CPU time and file sizes, and ends at the part's deadline.

With `walled=True` the function runs in a sandbox (`sandbox.wall`): no files, no network, no other processes; its module is
imported before the wall closes. A function that runs what the policy wrote does so with `sandbox.wall.forked`, and compares
what comes back: code in its own process could answer in its stead.
"""

import asyncio
import contextlib
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from envhub.envs.rubrics import Graded
from envhub.errors import ConfigError, EnvError
from envhub.sandbox.wall import shut_in

KEPT = ("PATH", "PYTHONPATH", "HOME", "LANG", "TMPDIR")
MAX_OUTPUT = 65_536
GRACE_S = 1.0


class Apart:
    """An async scorer for `Part` that runs each call in a fresh process."""

    def __init__(self, target: str, *, walled: bool = False, memory_mib: int = 2048, cpu_s: int = 60) -> None:
        """Score with `target`, in the sandbox if `walled`. Raises ConfigError for a name that is none."""
        place, _, name = target.rpartition(":")
        if not place or not name.isidentifier() or memory_mib < 64 or cpu_s < 1:
            raise ConfigError(f"target={target!r}, memory_mib={memory_mib}, cpu_s={cpu_s}", mend="name module:function")
        if place.endswith(".py") and not Path(place).is_file():
            raise ConfigError(f"target={target!r}: there is no such file", mend="name file.py:function")
        self._target, self._walled, self._memory, self._cpu = target, walled, memory_mib << 20, cpu_s

    async def __call__(self, graded: Graded) -> float | dict[str, float]:
        """The function's number or numbers. Raises EnvError if it raises, dies or gives none; cancelling kills it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "envhub.envs.rubric_process", self._target),
            *((str(self._memory), str(self._cpu)) if self._walled else ()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={k: os.environ[k] for k in KEPT if k in os.environ},
            preexec_fn=self._limit,
        )
        try:
            out, err = await process.communicate(json.dumps(asdict(graded), default=str).encode())
        finally:
            if process.returncode is None:
                await asyncio.shield(_end(process))
        try:
            return _numbers(json.loads(out[:MAX_OUTPUT])["score"])
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"it ended with {process.returncode}"]
            raise EnvError(f"{self._target}: {last[0][:500]}", mend="mend the function") from error

    def _limit(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (self._memory, self._memory))
        resource.setrlimit(resource.RLIMIT_CPU, (self._cpu, self._cpu + 1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminate, so that a wall's keeper takes its prisoner along; then kill whatever of the group is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
    await process.wait()


def _numbers(given: Any) -> float | dict[str, float]:
    return {str(name): float(value) for name, value in given.items()} if isinstance(given, Mapping) else float(given)


def _main(target: str, *wall: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the function prints is no answer
    told: dict[str, Any] = json.loads(sys.stdin.read())
    graded = Graded(**{**told, "turns": tuple((a, b) for a, b in told["turns"])})
    place, _, name = target.rpartition(":")
    function = runpy.run_path(place)[name] if place.endswith(".py") else getattr(import_module(place), name)
    if wall:
        shut_in(memory_bytes=int(wall[0]), cpu_s=int(wall[1]))
    answers.write(json.dumps({"score": _numbers(function(graded))}))
    answers.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
