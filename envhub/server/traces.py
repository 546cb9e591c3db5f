"""OpenTelemetry spans per session and verb, where the config asks for them.

Only OpenTelemetry's API is used: which exporter gets the spans is the process's own set-up, as in `opentelemetry-instrument
envhub serve ...`. A session's span is the parent of its verbs' spans, and ends when the session does.
"""

from typing import Any

from envhub.errors import ConfigError
from envhub.server.problems import Problem
from envhub.server.sessions import Session


class Traces:
    """Spans, or nothing at next to no cost."""

    def __init__(self, *, wanted: bool) -> None:
        """Raises ConfigError if spans are wanted and OpenTelemetry is not installed."""
        self._trace: Any = None
        self._sessions: dict[str, Any] = {}
        if not wanted:
            return
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise ConfigError("traces need OpenTelemetry", mend="pip install 'envhub-rl[serve]'") from error
        self._trace = trace
        self._tracer = trace.get_tracer("envhub.server")

    def opened(self, session: Session) -> None:
        """A session begins."""
        if self._trace is not None:
            facts = {"envhub.env": session.env_id, "envhub.worker": session.worker.name if session.worker else ""}
            self._sessions[session.token] = self._tracer.start_span("envhub.session", attributes=facts)

    def verb(self, session: Session, verb: str) -> Any:
        """A verb begins; give what this gives to `answered`."""
        if self._trace is None:
            return None
        parent = self._sessions.get(session.token)
        context = None if parent is None else self._trace.set_span_in_context(parent)
        return self._tracer.start_span(f"envhub.{verb}", context=context, attributes={"envhub.env": session.env_id})

    def answered(self, span: Any, failed: Problem | None) -> None:
        """A verb has its answer."""
        if span is None:
            return
        if failed is not None:
            span.set_attribute("envhub.problem", failed.code)
            span.set_status(self._trace.StatusCode.ERROR, failed.code)
        span.end()

    def ended(self, session: Session) -> None:
        """A session is over."""
        span = self._sessions.pop(session.token, None)
        if span is not None:
            span.set_attribute("envhub.steps", session.steps)
            span.end()
