"""Runs the rules on an environment, each under a deadline, and says what was found."""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from envhub.envs.check.rules import RULES
from envhub.envs.check.subject import Failed, Skipped, Subject
from envhub.envs.spec import EnvSpec

DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found."""

    rule: str
    verdict: Literal["passed", "failed", "skipped"]
    detail: str
    means: str


def check(
    spec: EnvSpec,
    options: Mapping[str, Any],
    *,
    rules: Sequence[Callable[[Subject], None]] = RULES,
    deadline_s: float = DEADLINE_S,
) -> tuple[Finding, ...]:
    """Try every rule on fresh environments of a spec. A rule that takes over `deadline_s` has failed, and is left behind."""
    return tuple(_run(rule, Subject(spec, options), deadline_s) for rule in rules)


def _run(rule: Callable[[Subject], None], subject: Subject, deadline_s: float) -> Finding:
    found: list[BaseException] = []

    def run() -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rule(subject)
        except BaseException as error:  # whatever an environment may raise, SystemExit included
            found.append(error)

    thread = threading.Thread(target=run, daemon=True, name=f"check-{rule.__name__}")
    thread.start()
    thread.join(deadline_s)
    means = (rule.__doc__ or "").strip()
    if thread.is_alive():
        return Finding(rule.__name__, "failed", f"took over {deadline_s:g} s", means)
    match found:
        case []:
            return Finding(rule.__name__, "passed", "", means)
        case [Skipped() as skipped]:
            return Finding(rule.__name__, "skipped", str(skipped), means)
        case [Failed() as failed]:
            return Finding(rule.__name__, "failed", str(failed), means)
    return Finding(rule.__name__, "failed", f"{type(found[0]).__name__}: {found[0]}"[:500], means)
