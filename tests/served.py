"""Real servers in processes of their own, and the packages that they serve."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 20


@dataclass(frozen=True, slots=True)
class Served:
    """Where a server answers, and its process."""

    url: str
    process: subprocess.Popen[str]

    @property
    def pids(self) -> list[int]:
        """The server and its workers."""
        own = self.process.pid
        tasks = Path(f"/proc/{own}/task").iterdir()
        return [own, *sorted({int(pid) for task in tasks for pid in (task / "children").read_text().split()})]


def package(site: Path, env_id: str, source: str) -> Path:
    """A package of one module, as pip leaves it in `site`: its SPEC is the environment `env_id`."""
    name = re.sub(r"\W+", "_", env_id).lower()
    home, info = site / name, site / f"{name}-1.0.dist-info"
    for folder in (home, info):
        folder.mkdir(parents=True)
    (home / "__init__.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[envhub.environments]\n{env_id} = {name}:SPEC\n")
    return site


@contextmanager
def serve(*arguments: str, site: Path | None = None) -> Iterator[Served]:
    """`envhub serve` with some arguments, until the block ends. It must end well when it is asked to."""
    command = [sys.executable, "-m", "envhub.cli.main", "serve", *arguments]
    command += [] if "--port" in arguments else ["--port", "0"]
    env = os.environ | ({"PYTHONPATH": str(site)} if site else {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found = re.search(r"http://127.0.0.1:\d+", process.stdout.readline())
        if found is None:
            process.kill()
            raise AssertionError(process.stderr.read())
        drains = [threading.Thread(target=pipe.read) for pipe in (process.stdout, process.stderr)]
        for drain in drains:
            drain.start()
        try:
            yield Served(found[0], process)
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) in (0, -9)  # -9: killed by its test
            for drain in drains:
                drain.join()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
