"""The conformance and honesty kit: what `envhub check` tries on an environment."""

from envhub.envs.check.kit import Finding, check
from envhub.envs.check.rules import RULES

__all__ = ["RULES", "Finding", "check"]
