"""Reward workers: an ended episode is scored while others go on being played (ROLL, arXiv:2506.06122).

A worker is a scorer and its terms: how much it weighs, how many episodes it scores at once, how long it may take, and what its
failure means. It sees the episode as a rubric's part does (`Graded`), so anything that can be a part can be a worker. Its score
is a number, or several by name, which add up.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from envhub.envs.judge import Judge
from envhub.envs.rubric_process import Apart
from envhub.envs.rubrics import Graded, called
from envhub.envs.tasks import Task
from envhub.errors import ConfigError, EpisodeError
from envhub.rollout.foreign import installed
from envhub.settings import Settings
from envhub.types import NO_PARTS, StopReason, Trajectory

ENVIRONMENT = "environment"  # the part that tells the environment's own reward
LONGEST_CAUSE = 500

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]


class RewardTerms(Settings):
    """On what terms a worker scores."""

    weight: float = 1.0
    """Factor of its score in the reward; 0 only writes the score down."""
    concurrency: int = Field(default=8, ge=1)
    """Episodes it scores at once; others wait, without environment or engine."""
    deadline_s: float = Field(default=60.0, gt=0)
    """How long it may take for one, not counting the wait. The episode's own deadline goes on meanwhile."""
    on_failure: Literal["fail", "keep"] = "fail"
    """Without a score the episode fails, or keeps its other rewards and has the part "NAME/failed"."""
    decides_success: bool = False
    """An episode counts as solved if this score is positive, whatever the environment says."""


class RuleReward(RewardTerms):
    """A pure function of installed code, called in a thread. One that may hang or is not trusted belongs in a sandbox."""

    kind: Literal["rule"]
    name: Name
    function: str = Field(pattern=r"^[\w.]+:\w+$")
    """Named "package.module:function"; takes a `Graded`."""


class SandboxReward(RewardTerms):
    """A function in a walled process of its own for each episode: no files, no network, killed at its deadline."""

    kind: Literal["sandbox"]
    name: Name
    function: str = Field(pattern=r"^.+:\w+$")
    """Named "package.module:function" or "folder/file.py:function"; takes a `Graded`."""
    memory_mib: int = Field(default=2048, ge=64)
    cpu_s: int = Field(default=60, ge=1)


class JudgeReward(RewardTerms):
    """A model behind an OpenAI-compatible API says how far a criterion is met, from 0 to 1."""

    kind: Literal["judge"]
    name: Name
    criterion: str
    model: str
    base_url: str
    """As in http://host:port/v1."""
    api_key: str = ""
    whole_episode: bool = True
    """Show it the whole conversation, and not only the task and the last reply."""


RewardConfig = Annotated[RuleReward | SandboxReward | JudgeReward, Field(discriminator="kind")]


class Scorer(Protocol):
    """Scores episodes that have ended."""

    @property
    def name(self) -> str:
        """What its scores are called."""
        ...

    async def score(self, episode: Graded) -> float | Mapping[str, float]:
        """A finite number, or some by name. Whatever it raises is its failure."""
        ...


@dataclass(frozen=True, slots=True)
class Called:
    """A scorer of whatever may score a rubric's part: a function, an `Apart`, a `Judge`."""

    name: str
    function: Callable[[Graded], Any]

    async def score(self, episode: Graded) -> float | Mapping[str, float]:
        """What the function gives."""
        given: float | Mapping[str, float] = await called(self.function, episode, name=self.name)
        return given


@dataclass(slots=True)
class Counters:
    """What a worker has done and is doing; `seconds` is the time that scoring took, without the wait."""

    scored: int = 0
    failed: int = 0
    waiting: int = 0
    running: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Worker:
    scorer: Scorer
    terms: RewardTerms
    room: asyncio.Semaphore
    counters: Counters


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Named numbers, or why there are none."""

    parts: Mapping[str, float] = field(default_factory=lambda: NO_PARTS)
    failure: str | None = None

    @property
    def score(self) -> float:
        return sum(self.parts.values())


class RewardWorkers:
    """Scores ended episodes, each by all workers at once."""

    def __init__(
        self,
        workers: Sequence[tuple[Scorer, RewardTerms]],
        *,
        env_weight: float = 1.0,
        owned: AsyncExitStack | None = None,
    ) -> None:
        """Join scorers of different names.

        Args:
            workers: who scores, and on what terms.
            env_weight: factor of the environment's own rewards.
            owned: what `close` closes.

        Raises:
            ConfigError: two have one name or decide success, or nothing would stand where a score is missing.
        """
        names = [ENVIRONMENT, *(scorer.name for scorer, _ in workers)]
        if len(set(names)) < len(names) or not workers:
            raise ConfigError(f"reward workers need different names, not {names}", mend="rename them")
        if sum(terms.decides_success for _, terms in workers) > 1:
            raise ConfigError("two reward workers decide success", mend="set decides_success for one")
        if not math.isfinite(env_weight):
            raise ConfigError(f"the environment's reward weighs {env_weight}", mend="give a finite weight")
        if env_weight == 0 and any(terms.on_failure == "keep" for _, terms in workers):
            raise ConfigError("on_failure=keep keeps an environment's reward without weight", mend="weigh it, or use fail")
        self._workers = [_Worker(s, terms, asyncio.Semaphore(terms.concurrency), Counters()) for s, terms in workers]
        self._env_weight, self._owned = env_weight, owned

    @property
    def counters(self) -> Mapping[str, Counters]:
        """Counts by scorer, as of now."""
        return {worker.scorer.name: replace(worker.counters) for worker in self._workers}

    def metrics(self) -> dict[str, float]:
        """The counters as a row of metrics names them: "rewards/NAME/scored" and so on."""
        counts = {name: asdict(counters) for name, counters in self.counters.items()}
        return {f"rewards/{name}/{key}": float(value) for name, each in counts.items() for key, value in each.items()}

    async def apply(self, trajectory: Trajectory, task: Task, exchanges: Sequence[tuple[str, str]]) -> Trajectory:
        """The trajectory with the workers' rewards on its last turn, or failed by the first of them that must not fail.

        Earlier turns stay as they are, but for the weight of the environment's rewards. Failed episodes, and those without a
        turn, are given back unscored. Cancelling cancels the scorers.
        """
        earned = trajectory.reward
        if earned is None or not trajectory.turns:
            return trajectory
        episode = Graded(
            task=dict(task.data),
            turns=tuple(exchanges),
            answer=exchanges[-1][1],
            task_id=task.id,
            final_observation=trajectory.final_observation,
            env_reward=earned,
            success=trajectory.success,
        )
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._ask(worker, episode)) for worker in self._workers]
        return self._joined(trajectory, earned, [task.result() for task in asked])

    async def close(self) -> None:
        """Close the judges."""
        if self._owned is not None:
            await self._owned.aclose()

    async def _ask(self, worker: _Worker, episode: Graded) -> _Verdict:
        counters = worker.counters
        counters.waiting += 1
        try:
            await worker.room.acquire()
        finally:
            counters.waiting -= 1
        began = time.monotonic()
        counters.running += 1
        try:
            verdict = await _attempt(worker.scorer, episode, worker.terms.deadline_s)
        finally:
            worker.room.release()
            counters.running -= 1
            counters.seconds += time.monotonic() - began
        counters.scored += verdict.failure is None
        counters.failed += verdict.failure is not None
        return verdict

    def _joined(self, trajectory: Trajectory, earned: float, verdicts: Sequence[_Verdict]) -> Trajectory:
        parts, added, success = {ENVIRONMENT: earned}, 0.0, trajectory.success
        for worker, verdict in zip(self._workers, verdicts, strict=True):
            if verdict.failure is None:
                parts |= verdict.parts
                added += worker.terms.weight * verdict.score
                success = verdict.score > 0 if worker.terms.decides_success else success
            elif worker.terms.on_failure == "keep":
                parts[f"{worker.scorer.name}/failed"] = 1.0
            else:
                return _failed(trajectory, verdict.failure)
        *earlier, last = [replace(turn, reward=self._env_weight * turn.reward) for turn in trajectory.turns]
        if not math.isfinite(last.reward + added):
            return _failed(trajectory, f"the weighted rewards of {', '.join(parts)} add up to {last.reward + added}")
        if both := sorted(parts.keys() & last.reward_parts.keys()):
            return _failed(trajectory, f"environment and reward workers both name a part {both[0]!r}")
        scored = replace(last, reward=last.reward + added, reward_parts={**last.reward_parts, **parts})
        return replace(trajectory, turns=(*earlier, scored), success=success)


def build_rewards(configs: Sequence[RewardConfig], *, env_weight: float = 1.0) -> RewardWorkers:
    """The workers of a config. Close them at the end. Raises ConfigError."""
    owned = AsyncExitStack()
    workers: list[tuple[Scorer, RewardTerms]] = []
    for config in configs:
        function: Callable[[Graded], Any]
        match config:
            case RuleReward():
                function = installed(config.function, what="reward")
            case SandboxReward():
                function = Apart(config.function, walled=True, memory_mib=config.memory_mib, cpu_s=config.cpu_s)
            case JudgeReward():
                judge = Judge(
                    config.criterion,
                    model=config.model,
                    base_url=config.base_url,
                    api_key=config.api_key,
                    at_once=config.concurrency,
                    deadline_s=config.deadline_s,
                    whole=config.whole_episode,
                )
                owned.push_async_exit(judge)
                function = judge
        workers.append((Called(config.name, function), config))
    return RewardWorkers(workers, env_weight=env_weight, owned=owned)


async def _attempt(scorer: Scorer, episode: Graded, deadline_s: float) -> _Verdict:
    try:
        async with asyncio.timeout(deadline_s) as limit:
            given = await scorer.score(episode)
    except EpisodeError as error:
        return _Verdict(failure=f"reward worker {scorer.name} failed: {error.what}"[:LONGEST_CAUSE])
    except Exception as error:  # foreign code enters here
        late = isinstance(error, TimeoutError) and limit.expired()
        why = f"took over {deadline_s:g} s" if late else f"raised {type(error).__name__}: {error}"
        return _Verdict(failure=f"reward worker {scorer.name} {why}"[:LONGEST_CAUSE])
    named = given if isinstance(given, Mapping) else {"": given}
    parts = {f"{scorer.name}/{key}" if key else scorer.name: _number(value) for key, value in named.items()}
    if not parts or not all(map(math.isfinite, parts.values())):
        return _Verdict(failure=f"reward worker {scorer.name} gave {given!r}, no finite number"[:LONGEST_CAUSE])
    return _Verdict(parts)


def _number(value: object) -> float:
    """The value as a float; NaN for what is no number."""
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _failed(trajectory: Trajectory, cause: str) -> Trajectory:
    return replace(trajectory, stop=StopReason.FAILED, failure=cause, success=None)
