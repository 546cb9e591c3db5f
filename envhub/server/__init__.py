"""An environment as a service, and the client of one."""

from envhub.server.config import FleetConfig, ServeConfig

__all__ = ["FleetConfig", "ServeConfig"]
