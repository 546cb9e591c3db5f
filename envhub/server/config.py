"""What a server serves: fleets of environments, capacity, tenants. A `fleet.yaml` is one `ServeConfig`."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from envhub.settings import Settings


class Placement(Settings):
    """What one worker reserves on a Ray cluster; workers are spread over its machines."""

    num_cpus: float = Field(default=1.0, ge=0)
    memory_mib: int | None = Field(default=None, ge=64)
    resources: dict[str, float] = Field(default_factory=dict)


class FleetConfig(Settings):
    """One environment and the processes that run it."""

    id: str
    """An id of `envhub list`; mounted at /envs/<id>."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Given to every environment; callers may not change them."""
    workers: int = Field(default=1, ge=1, le=1024)
    max_workers: int | None = Field(default=None, ge=1, le=4096)
    """With it, workers come and go between `workers` and this by the sessions held and waited for; each holds its part of
    `max_sessions`."""
    calm_s: float = Field(default=60.0, gt=0)
    """How long fewer workers must have been enough before one goes."""
    placement: Placement = Placement()
    """What a worker reserves on a Ray cluster."""
    max_sessions: int = Field(default=4096, ge=1)
    """Sessions at once, over all workers."""
    queue: int = Field(default=1024, ge=0)
    """Callers that may wait for a session; more are refused."""
    step_deadline_s: float = Field(default=60.0, gt=0, le=3600)
    """A verb that takes longer has hung: its worker is replaced."""
    start_deadline_s: float = Field(default=60.0, gt=0, le=3600)
    lease_s: float = Field(default=60.0, gt=0, le=86_400)
    """A session that nothing renews for so long is over."""
    repeatable: bool = False
    """The environment repeats itself exactly: after a restart recorded sessions are brought back by doing their verbs again."""
    recycle_episodes: int | None = Field(default=None, ge=1)
    """A worker is replaced after so many episodes, once its sessions have ended."""
    memory_mib: int | None = Field(default=None, ge=64)
    """A worker that holds more is replaced."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.max_workers is not None and self.max_workers < self.workers:
            raise ValueError(f"max_workers {self.max_workers} is below workers {self.workers}")
        return self


class AgentConfig(Settings):
    """Who plays when `/v1/chat/completions` is asked for a "model"."""

    env: str
    """The id of a fleet."""
    policy: Literal["random", "solver", "model"] = "random"
    base_url: str = ""
    """Of the OpenAI-compatible server of a policy that is a model: http://127.0.0.1:8001/v1."""
    model: str = ""
    key_variable: str = ""
    """The environment variable that holds that server's key; keys do not belong into this file."""
    max_turns: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.policy == "model") != bool(self.base_url and self.model):
            raise ValueError("a policy that is a model, and only that, has base_url and model")
        return self


class ServeConfig(Settings):
    """A server."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65_535)
    fleets: tuple[FleetConfig, ...] = Field(min_length=1)
    agents: dict[str, AgentConfig] = Field(default_factory=dict)
    """What `/v1/chat/completions` calls models: agents in environments served here, by name."""
    auth: Path | None = None
    """A file of tenants and their tokens' hashes; without one everybody on this machine is the tenant "local"."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may name beside loopback's; "*" for any."""
    allowed_origins: tuple[str, ...] = ()
    """Origins from which browsers may call beside this server's own."""
    record: Path | None = None
    """A file that keeps sessions and answers over a restart: no answer goes out before it is written."""
    ray: str | None = None
    """A Ray cluster whose machines run the workers: host:port, "auto", or "local" for one of its own; none runs them here."""
    ray_open: bool = False
    """The cluster may take commands without a token: whoever reaches its ports can run anything there."""
    traces: bool = False
    """OpenTelemetry spans of every session and verb."""
    patience_s: float = Field(default=30.0, gt=0)
    """How long an HTTP request may take to arrive, and an answer may find no taker."""
    grace_s: float = Field(default=10.0, ge=0)
    """On SIGTERM, how long running verbs may take to end."""
    max_body_bytes: int = Field(default=8 << 20, ge=1024)
    """Of one request, and of one WebSocket frame."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        ids = [fleet.id for fleet in self.fleets]
        if len(set(ids)) < len(ids):
            raise ValueError(f"fleets name an id twice: {', '.join(ids)}")
        if strange := {agent.env for agent in self.agents.values()} - set(ids):
            raise ValueError(f"agents in environments that are not served: {', '.join(sorted(strange))}")
        if self.auth is None and self.host not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError(f"host {self.host} can be reached from outside: name tenants in an auth file")
        return self
