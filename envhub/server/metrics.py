"""Counters and histograms in Prometheus' text format; labels come from the config, never from callers."""

import bisect
from collections import Counter
from collections.abc import Sequence

from envhub.server.problems import Problem

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """What a server counts."""

    def __init__(self) -> None:
        """All zero."""
        self._opened: Counter[str] = Counter()
        self._opened_by: Counter[tuple[str, str]] = Counter()
        self._steps_by: Counter[tuple[str, str]] = Counter()
        self._blocked, self._blocked_s = 0, 0.0
        self._ended: Counter[str] = Counter()
        self._refused: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()
        self._latency: dict[tuple[str, str], list[int]] = {}
        self._seconds: Counter[tuple[str, str]] = Counter()
        self._expired = 0

    def opened(self, env_id: str, tenant: str) -> None:
        """A session was opened."""
        self._opened[env_id] += 1
        self._opened_by[env_id, tenant] += 1

    def ended(self, env_id: str) -> None:
        """A session is over."""
        self._ended[env_id] += 1

    def refused(self, env_id: str, why: str) -> None:
        """A caller got no session."""
        self._refused[env_id, why] += 1

    def expired(self, count: int) -> None:
        """Leases ran out."""
        self._expired += count

    def loop_blocked(self, seconds: float, stack: str) -> None:
        """The event loop stood still for so long."""
        self._blocked += 1
        self._blocked_s += seconds

    def verb(self, env_id: str, tenant: str, verb: str, seconds: float, failed: Problem | None) -> None:
        """A verb was answered."""
        if verb == "step":
            self._steps_by[env_id, tenant] += 1
        key = (env_id, verb)
        buckets = self._latency.get(key)
        if buckets is None:
            buckets = self._latency[key] = [0] * (len(BUCKETS) + 1)
        buckets[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._seconds[key] += seconds  # type: ignore[assignment]
        if failed is not None:
            self._failed[env_id, failed.code] += 1

    def steps(self, env_id: str) -> int:
        """How many steps were answered."""
        return sum(self._latency.get((env_id, "step"), ()))

    def text(self, gauges: dict[str, dict[str, float]], tenants: Sequence[str] = ()) -> str:
        """Everything, with gauges by name and environment; of the counts by tenant those of some tenants."""
        lines: list[str] = []
        for name, counter in (("sessions_opened", self._opened), ("sessions_ended", self._ended)):
            lines.append(f"# TYPE envhub_{name}_total counter")
            lines += [f'envhub_{name}_total{{env="{env}"}} {count}' for env, count in counter.items()]
        for name, by in (("tenant_sessions_opened", self._opened_by), ("tenant_steps", self._steps_by)):
            lines.append(f"# TYPE envhub_{name}_total counter")
            shown = [(env, who, count) for (env, who), count in by.items() if who in tenants]
            lines += [f'envhub_{name}_total{{env="{env}",tenant="{who}"}} {count}' for env, who, count in shown]
        lines.append("# TYPE envhub_loop_blocked_total counter")
        lines.append(f"envhub_loop_blocked_total {self._blocked}")
        lines.append("# TYPE envhub_loop_blocked_seconds_total counter")
        lines.append(f"envhub_loop_blocked_seconds_total {self._blocked_s:.3f}")
        lines.append("# TYPE envhub_leases_expired_total counter")
        lines.append(f"envhub_leases_expired_total {self._expired}")
        for name, label, pairs in (("refused", "reason", self._refused), ("failed", "code", self._failed)):
            lines.append(f"# TYPE envhub_{name}_total counter")
            lines += [f'envhub_{name}_total{{env="{env}",{label}="{why}"}} {count}' for (env, why), count in pairs.items()]
        lines.append("# TYPE envhub_verb_seconds histogram")
        for (env, verb), buckets in self._latency.items():
            labels, total = f'env="{env}",verb="{verb}"', 0
            for bound, count in zip((*BUCKETS, "+Inf"), buckets, strict=True):
                total += count
                lines.append(f'envhub_verb_seconds_bucket{{{labels},le="{bound}"}} {total}')
            lines.append(f"envhub_verb_seconds_sum{{{labels}}} {self._seconds[env, verb]:.6f}")
            lines.append(f"envhub_verb_seconds_count{{{labels}}} {total}")
        for name, values in gauges.items():
            lines.append(f"# TYPE envhub_{name} gauge")
            lines += [f'envhub_{name}{{env="{env}"}} {value:g}' for env, value in values.items()]
        return "\n".join(lines) + "\n"
