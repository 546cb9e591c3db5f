"""A server of environments, put together: config, application, uvicorn, and an orderly end."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from envhub.cluster.links import Link
from envhub.envs.runtime.child import calm_collector
from envhub.errors import ConfigError, EnvHubError
from envhub.server.app import build_app
from envhub.server.auth import Tenants
from envhub.server.config import FleetConfig, ServeConfig
from envhub.server.guard import App
from envhub.server.patience import patient
from envhub.server.service import Service
from envhub.server.workers import fleet_command
from envhub.settings import checked, load_settings
from envhub.telemetry import Calm, setup_logging

log = logging.getLogger("envhub.serve")
NewLink = Callable[[FleetConfig], Link]


def serve_config(
    envs: Sequence[str],
    path: Path | None,
    overrides: Sequence[str],
    server: Mapping[str, Any],
    fleet: Mapping[str, Any],
) -> ServeConfig:
    """The config that a command line asks for; what it leaves out (None) is the file's or the default.

    Raises:
        ConfigError: ids and a file, or neither; or the values make no sense.
    """
    if bool(envs) == (path is not None):
        raise ConfigError("name environments, or a fleet file with -c", mend="envhub serve game/FrozenLake-v1")
    given = {k: v for k, v in server.items() if v is not None}
    more = {k: v for k, v in fleet.items() if v is not None}
    found: dict[str, Any] = {"fleets": [{"id": env} for env in envs]}
    if path is not None:
        found = load_settings(ServeConfig, path, overrides).model_dump()
    fleets = [one | more for one in found["fleets"]]
    return checked(ServeConfig, found | given | {"fleets": fleets}, source="the command line")


def serve(config: ServeConfig, again: Callable[[], ServeConfig]) -> int:
    """Serve until a signal ends it; the exit code. On SIGHUP the config is read `again`.

    Raises:
        ConfigError: before anything listens.
    """
    setup_logging("INFO", calm=True)
    calm_collector()
    tenants = Tenants.read(config.auth)
    for fleet in config.fleets:
        fleet_command(fleet.id)
    with contextlib.ExitStack() as stack:
        new_link = None if config.ray is None else stack.enter_context(_cluster(config.ray, may_be_open=config.ray_open))
        return uvloop.run(_serve(config, again, tenants, _listen(config), new_link))


@contextlib.contextmanager
def _cluster(address: str, *, may_be_open: bool) -> Iterator[NewLink]:
    """Where workers run while the block lasts: on a Ray cluster. Raises ConfigError."""
    try:
        cluster = import_module("envhub.cluster.ray_link")
    except ImportError as error:
        raise ConfigError("workers on a cluster need ray", mend="pip install 'envhub-rl[ray]'") from error
    with cluster.connected(address, may_be_open=may_be_open):
        yield lambda fleet: cluster.RayLink(**fleet.placement.model_dump())


async def _serve(
    config: ServeConfig, again: Callable[[], ServeConfig], tenants: Tenants, listener: socket.socket, new_link: NewLink | None
) -> int:
    host, port = listener.getsockname()[:2]
    service = Service(config, tenants, new_link)
    try:
        async with service.running():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, service, again)
            server = _Server(_uvicorn(config, build_app(service)), service, f"http://{host}:{port}")
            await server.serve(sockets=[listener])
            return 0 if server.started else 1
    except* EnvHubError as group:
        raise group.exceptions[0] from None
    finally:
        listener.close()


def _reload(service: Service, again: Callable[[], ServeConfig]) -> None:
    """Take the config anew; one that is wrong changes nothing and is told."""
    try:
        service.reload(again())
    except ConfigError as error:
        log.error("the config was not taken", extra={"error": error.what})


def _uvicorn(config: ServeConfig, app: App) -> uvicorn.Config:
    found = uvicorn.Config(
        app,
        http=patient(config.patience_s),
        ws="websockets-sansio",
        ws_max_size=config.max_body_bytes,
        ws_per_message_deflate=False,
        lifespan="off",
        log_level="warning",
        access_log=False,
        backlog=4096,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    logging.getLogger("uvicorn.error").addFilter(Calm())
    return found


class _Server(uvicorn.Server):
    """Says where it listens once it does, and lets running verbs end before it stops."""

    def __init__(self, settings: uvicorn.Config, service: Service, url: str) -> None:
        super().__init__(settings)
        self._service, self._url = service, url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            for env in self._service.fleets:
                sys.stdout.write(f"serving {self._url}/envs/{env}\n")
            sys.stdout.write(f"look: {self._url}/ui  docs: {self._url}/docs  metrics: {self._url}/metrics\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then stop."""
        await self._service.drain()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal ends the server in order, a second one at once; neither is raised again: the exit code is 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _listen(config: ServeConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {config.host}:{config.port}: {error}", mend="choose another --port") from error
    return listener
