"""Rubrics: named reward functions with weights, each logged by name; a part that breaks is a failed part and never a silent 0.

A part is a function of one `Graded` (what the task was, what the policy did), sync or async. What happens when it raises,
hangs or gives no finite number is the rubric's declared policy:

    fail    the episode fails: data with no reward (the default)
    drop    the part is left out, and the weights of the others are scaled up to the same sum
    floor   the part counts with its stated floor
"""

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

from envhub.errors import ConfigError, EnvError

OnFailure = Literal["fail", "drop", "floor"]


@dataclass(frozen=True, slots=True)
class Graded:
    """What is graded: the task's data, the conversation as (observation, reply) pairs, and the final answer.

    The rest is known only once an episode has ended, to reward workers: the task's id, what was shown last, and what the
    environment itself gave for it.
    """

    task: Mapping[str, Any]
    turns: tuple[tuple[str, str], ...]
    answer: str
    task_id: str = ""
    final_observation: str = ""
    env_reward: float | None = None
    success: bool | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One named reward function.

    Attributes:
        name: what the part is logged as.
        score: gives a finite number, by custom 0 to 1; may be async.
        weight: its factor in the sum; 0 logs a part without rewarding it.
        floor: what it counts with when it fails under the policy "floor".
        deadline_s: how long it may take.
    """

    name: str
    score: Callable[[Graded], Any]
    weight: float = 1.0
    floor: float = 0.0
    deadline_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Scores:
    """A rubric's verdict: the weighted sum, the parts' own scores, and why parts failed."""

    reward: float
    parts: Mapping[str, float]
    failures: Mapping[str, str]

    def info(self) -> dict[str, Any]:
        """As an environment's `info` carries it."""
        return {"reward_parts": dict(self.parts)} | ({"failed_parts": dict(self.failures)} if self.failures else {})


class Rubric:
    """Weighted parts, scored at once."""

    def __init__(self, parts: Sequence[Part], *, on_failure: OnFailure = "fail") -> None:
        """Take parts with different names and finite weights. Raises ConfigError."""
        names = [part.name for part in parts]
        if len(set(names)) < len(names) or not parts:
            raise ConfigError(f"a rubric needs parts of different names, not {names}", mend="rename the parts")
        if not all(math.isfinite(p.weight) and math.isfinite(p.floor) and p.deadline_s > 0 for p in parts):
            raise ConfigError("weights and floors must be finite, deadlines positive", mend="correct the parts")
        if on_failure not in ("fail", "drop", "floor"):
            raise ConfigError(f"on_failure={on_failure!r}", mend="use fail, drop or floor")
        self._parts, self._on_failure = tuple(parts), on_failure

    async def score(self, graded: Graded) -> Scores:
        """Score all parts at once, synchronous ones in threads.

        Raises:
            EnvError: a part failed and the policy is "fail", or every part failed and the policy is "drop".
        """
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(_score(part, graded)) for part in self._parts]
        return self._sum([run.result() for run in runs])

    def score_now(self, graded: Graded) -> Scores:
        """`score` for synchronous environments; async parts run on an event loop of their own."""
        return asyncio.run(self.score(graded))

    def _sum(self, given: Sequence[float | str]) -> Scores:
        failures = {part.name: why for part, why in zip(self._parts, given, strict=True) if isinstance(why, str)}
        scored = {part.name: value for part, value in zip(self._parts, given, strict=True) if not isinstance(value, str)}
        if failures and self._on_failure == "fail":
            name, why = next(iter(failures.items()))
            raise EnvError(f"rubric part {name!r} failed: {why}", mend="mend the part, or declare on_failure")
        weights = {part.name: part.weight for part in self._parts}
        if self._on_failure == "floor":
            scored |= {part.name: part.floor for part in self._parts if part.name in failures}
        kept, total = sum(abs(weights[name]) for name in scored), sum(map(abs, weights.values()))
        if failures and not kept:
            raise EnvError(f"every weighted part failed: {failures}", mend="mend the parts")
        scale = total / kept if kept else 1.0
        return Scores(scale * sum(weights[name] * value for name, value in scored.items()), scored, failures)


async def _score(part: Part, graded: Graded) -> float | str:
    """A part's score, or why there is none."""
    try:
        async with asyncio.timeout(part.deadline_s):
            score = float(await called(part.score, graded, name=part.name))
    except TimeoutError:
        return f"took over {part.deadline_s:g} s"
    except Exception as error:  # foreign code enters here
        return f"{type(error).__name__}: {error}"
    return score if math.isfinite(score) else f"gave {score}"


async def called(score: Callable[[Graded], Any], graded: Graded, *, name: str) -> Any:
    """What a scoring function gives, whether it is async or not."""
    if inspect.iscoroutinefunction(score):
        return await score(graded)
    value = await _in_thread(score, graded, name)
    return await value if inspect.isawaitable(value) else value


async def _in_thread(score: Callable[[Graded], Any], graded: Graded, name: str) -> Any:
    """Run a synchronous function in a thread that nobody waits for once it is late (an executor would)."""
    answer: Future[Any] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            given = score(graded)
        except BaseException as error:
            answer.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        else:
            answer.set_result(given)

    threading.Thread(target=run, daemon=True, name=f"rubric-{name}").start()
    return await asyncio.wrap_future(answer)
