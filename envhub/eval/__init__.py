"""What episodes say about a policy."""

from envhub.eval.summary import pass_at_k, summarise, wilson

__all__ = ["pass_at_k", "summarise", "wilson"]
