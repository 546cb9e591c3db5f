"""The durable record of episodes: written before anything is acknowledged, read by trainer, eval and viewer."""

from envhub.journal.store import Journal

__all__ = ["Journal"]
