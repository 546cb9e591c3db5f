"""What episodes say about a policy."""

from envhub.eval.summary import EvalSummary, pass_at_k, summarise

__all__ = ["EvalSummary", "pass_at_k", "summarise"]
