"""A conversation in, sampled tokens out. Engines are imported from the file that owns them; this page loads no torch."""

from envhub.policy.core import Completion, Policy, Reply, Sampling, Seat, TokenEngine

__all__ = ["Completion", "Policy", "Reply", "Sampling", "Seat", "TokenEngine"]
