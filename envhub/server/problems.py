"""Refusals as a caller sees them (RFC 9457): what happened with the numbers, what to do, and never anything internal."""

from dataclasses import dataclass
from typing import Any

TITLES = {
    400: "Bad request",
    401: "No valid token",
    403: "Forbidden",
    404: "Not found",
    409: "Conflict",
    410: "Session lost",
    413: "Too large",
    422: "Invalid request",
    429: "Quota reached",
    500: "Environment error",
    502: "Environment broke its contract",
    503: "Unavailable",
    504: "Deadline exceeded",
    507: "Storage full",
}


@dataclass(eq=False)
class Problem(Exception):
    """One refusal.

    Attributes:
        status: HTTP status.
        code: a word for programs.
        detail: what happened, with the numbers.
        hint: what to do.
        retry_after_s: when trying again may help; None if it will not.
    """

    status: int
    code: str
    detail: str
    hint: str = ""
    retry_after_s: float | None = None

    def body(self) -> dict[str, Any]:
        """As application/problem+json, and as the wire carries it."""
        found: dict[str, Any] = {
            "type": f"about:blank#{self.code}",
            "title": TITLES.get(self.status, "Problem"),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "retryable": self.retry_after_s is not None,
        }
        if self.hint:
            found["hint"] = self.hint
        if self.retry_after_s is not None:
            found["retry_after_s"] = self.retry_after_s
        return found


def unknown_session() -> Problem:
    """The same words for sessions that never were, are over, or belong to somebody else."""
    return Problem(404, "session_unknown", "There is no such session.", "Open a new one; a lease ends when nothing renews it.")
