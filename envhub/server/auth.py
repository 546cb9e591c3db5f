"""Tenants and their tokens. The file holds hashes only; `envhub token NAME` makes a pair.

tenants:
  alice: {token_sha256: 2bb80d5..., weight: 2, max_sessions: 64}
"""

import hashlib
import hmac
import secrets
import stat
from pathlib import Path
from typing import Annotated

from pydantic import Field

from envhub.errors import ConfigError
from envhub.server.admission import Share
from envhub.server.problems import Problem
from envhub.settings import Settings, load_settings

LOCAL = "local"


class TenantConfig(Settings):
    """One tenant."""

    token_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Its part of the places when callers wait."""
    max_sessions: int | None = Field(default=None, ge=1)
    """Sessions at once, over all environments."""
    operator: bool = False
    """Whether /metrics shows it the counts of all tenants, and not its own only."""


class AuthConfig(Settings):
    """The auth file."""

    tenants: dict[Annotated[str, Field(pattern=r"^[\w.@-]{1,64}$")], TenantConfig] = Field(min_length=1)


class Tenants:
    """Who a token belongs to."""

    def __init__(self, tenants: dict[str, TenantConfig] | None = None) -> None:
        """Without tenants everybody is "local"."""
        self._tenants = tenants

    @staticmethod
    def read(path: Path | None) -> "Tenants":
        """The tenants of an auth file. Raises ConfigError if it is wrong, or readable by others."""
        if path is None:
            return Tenants()
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error}", mend="give an auth file") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"{path} can be read by others (mode {stat.S_IMODE(mode):o})", mend=f"chmod 600 {path}")
        return Tenants(load_settings(AuthConfig, path).tenants)

    @property
    def open(self) -> bool:
        """Whether no token is asked for."""
        return self._tenants is None

    def who(self, header: str) -> str:
        """The tenant of an Authorization header. Raises Problem (401); every token is compared, in constant time each."""
        if self._tenants is None:
            return LOCAL
        kind, _, token = header.partition(" ")
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).hexdigest()
        found = None
        for name, tenant in self._tenants.items():
            if hmac.compare_digest(digest, tenant.token_sha256):
                found = name
        if found is None or kind.lower() != "bearer":
            raise Problem(401, "unauthorized", "No valid token was given.", "Send the header `Authorization: Bearer TOKEN`.")
        return found

    def seen_by(self, tenant: str) -> tuple[str, ...]:
        """The tenants whose counts one may see."""
        operator = self._tenants is not None and tenant in self._tenants and self._tenants[tenant].operator
        return tuple(self._tenants or ()) if operator else (tenant,)

    def shares(self) -> dict[str, Share]:
        """Every tenant's part."""
        return {name: Share(t.weight, t.max_sessions) for name, t in (self._tenants or {}).items()}


def new_token() -> tuple[str, str]:
    """A token and what the auth file holds of it."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()
