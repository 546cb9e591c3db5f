"""Children on the machines of a Ray cluster: each has an actor beside it, which relays its bytes. The only importer of ray.

Every machine of the cluster needs the same Python at the same place, with EnvHub and the environments installed.
"""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import ray
from ray.exceptions import RayError

from envhub.cluster.links import OnData, OnEnd, resident_mib
from envhub.errors import ConfigError

log = logging.getLogger(__name__)
RAY: Any = ray  # its types say less than its documentation
CHUNK = 1 << 20
PATIENCE_S = 5.0
PROBE = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1]).internal_kv_keys(b'', timeout=5)"


@contextlib.contextmanager
def connected(address: str, *, may_be_open: bool = False) -> Iterator[None]:
    """A connection to a Ray cluster; "local" starts one on this machine for as long as the block lasts.

    Ray's ports stand open on every interface, so a cluster has to ask for a token, unless it `may_be_open`.

    Raises:
        ConfigError: no cluster answers there, or it takes commands from anybody.
    """
    quiet = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
    try:
        if address == "local":
            RAY.init(_node_ip_address="127.0.0.1", **quiet)
        else:
            _probe(address)
            RAY.init(address=address, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        what = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise ConfigError(f"no Ray cluster at {address!r}: {what}", mend="give host:port, auto or local") from error
    try:
        if not may_be_open and _takes_commands_from_anybody(RAY.get_runtime_context().gcs_address):
            mend = "start it with RAY_AUTH_MODE=token, or set ray_open: true if its network is private"
            raise ConfigError(f"the Ray cluster at {address!r} takes commands from anybody who reaches it", mend=mend)
        yield
    finally:
        RAY.shutdown()


def _takes_commands_from_anybody(gcs: str) -> bool:
    """Whether a process without a token is answered."""
    stranger = os.environ | {"RAY_AUTH_MODE": "disabled"}
    return subprocess.run([sys.executable, "-c", PROBE, gcs], env=stranger, capture_output=True, timeout=60).returncode == 0


def _probe(address: str) -> None:
    """Ray itself would try for minutes. Raises OSError where nobody listens."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        with socket.create_connection((host.removeprefix("ray://").strip("[]"), int(port)), PATIENCE_S):
            pass


class Relay:
    """The actor beside a child."""

    async def begin(self, command: Sequence[str]) -> int:
        """Start the child; its process id. It dies with this actor."""
        self._child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=CHUNK)
        return self._child.pid

    async def write(self, data: bytes) -> None:
        """Pass bytes on."""
        assert self._child.stdin is not None
        self._child.stdin.write(data)

    async def read(self) -> bytes | int:
        """What the child has written since, once there is something; its exit code when it has ended."""
        assert self._child.stdout is not None
        return await self._child.stdout.read(CHUNK) or await self._child.wait()

    async def close(self) -> None:
        """Ask the child to end."""
        assert self._child.stdin is not None
        self._child.stdin.close()

    async def memory_mib(self) -> float:
        """Resident memory of the child."""
        return resident_mib(self._child.pid)


class RayLink:
    """A child beside an actor of the connected cluster."""

    def __init__(
        self, *, num_cpus: float = 1.0, memory_mib: int | None = None, resources: Mapping[str, float] | None = None
    ) -> None:
        """`num_cpus`, `memory_mib` and custom `resources` are reserved for the child; children are spread over machines."""
        options: dict[str, Any] = {"num_cpus": num_cpus, "resources": dict(resources or {}), "scheduling_strategy": "SPREAD"}
        if memory_mib is not None:
            options["memory"] = memory_mib << 20
        self._actor = RAY.remote(Relay).options(max_restarts=0, **options).remote()
        self._loop = asyncio.get_running_loop()
        self._memory = 0.0
        self._asked_memory = False
        self._told = False

    async def start(self, command: Sequence[str], on_data: OnData, on_end: OnEnd) -> None:
        self._on_data, self._on_end = on_data, on_end
        begun = asyncio.wrap_future(self._actor.begin.remote(list(command)).future())
        try:
            if not (await asyncio.wait([begun], timeout=PATIENCE_S))[0]:
                log.warning("a worker waits for its place", extra={"cluster": free_resources()})
            await begun
        except RayError as error:
            raise OSError(_first_line(error)) from error
        self._listen()

    def write(self, data: bytes) -> None:
        self._actor.write.remote(data)

    def close(self) -> None:
        self._actor.close.remote()

    def kill(self) -> None:
        RAY.kill(self._actor, no_restart=True)  # the child dies with its actor
        if not self._told:
            self._loop.call_soon(self._end, "was killed")

    def memory_mib(self) -> float:
        if not self._asked_memory:
            self._asked_memory = True
            self._then(self._actor.memory_mib.remote(), self._remember)
        return self._memory

    def _listen(self) -> None:
        self._then(self._actor.read.remote(), self._got)

    def _then(self, reference: Any, then: Any) -> None:
        def done(result: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the cluster
                self._loop.call_soon_threadsafe(then, result)

        reference.future().add_done_callback(done)

    def _got(self, result: Future[Any]) -> None:
        try:
            found = result.result()
        except RayError as error:
            self._end(f"was lost with its Ray actor: {_first_line(error)}")
            return
        if isinstance(found, bytes):
            self._on_data(found)
            self._listen()
        else:
            self._end(f"was killed by signal {-found}" if found < 0 else f"ended with code {found}")
            RAY.kill(self._actor, no_restart=True)

    def _remember(self, result: Future[Any]) -> None:
        self._asked_memory = False
        with contextlib.suppress(RayError):
            self._memory = float(result.result())

    def _end(self, cause: str) -> None:
        if not self._told:
            self._told = True
            self._on_end(cause)


def free_resources() -> str:
    """What the cluster has to give, in words."""
    left, all_ = RAY.available_resources(), RAY.cluster_resources()
    return f"{left.get('CPU', 0):g} of {all_.get('CPU', 0):g} CPUs are free on {len(RAY.nodes())} machines"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
