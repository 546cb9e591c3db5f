"""One episode, from reset to its frozen record; the one place where a failed episode becomes data."""

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from envhub.envs.core import AsyncEnv, Env
from envhub.envs.spec import EnvSpec, RewardKind
from envhub.envs.tasks import Task
from envhub.errors import EnvError, EpisodeError
from envhub.policy.core import Policy, Reply, Seat
from envhub.types import NO_PARTS, FinishReason, StopReason, Trajectory, Turn

EnvFactory = Callable[[], Env | AsyncEnv]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an episode belongs: its id, group, member and attempt, and the seed of environment and sampler."""

    id: str
    group: str
    member: int
    attempt: int
    seed: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Where episodes are played: the environment's spec and version, its factory, and the limits."""

    spec: EnvSpec
    version: str
    make_env: EnvFactory
    max_turns: int
    turn_deadline_s: float = 60.0
    threads: Executor | None = None  # runs the verbs of synchronous environments that are not `inline`


@dataclass(slots=True)
class _Record:
    """What has happened so far in an episode."""

    turns: list[Turn] = field(default_factory=list)
    stop: StopReason = StopReason.TRUNCATED
    success: bool | None = None
    failure: str | None = None
    final: str = ""
    policy_s: float = 0.0
    env_s: float = 0.0
    total: float = 0.0


async def play(stage: Stage, policy: Policy, task: Task, place: Place) -> Trajectory:
    """Play one episode to its end. A broken environment or policy gives a failed trajectory; cancelling closes both.

    The record is token-exact: spans point into the seat's segments.
    """
    began = time.monotonic()
    record = _Record()
    seat = policy.seat(episode=place.id, seed=place.seed, instructions=stage.spec.instructions)
    try:
        await _play(stage, seat, task, place, record)
    except EpisodeError as error:
        record.stop, record.failure, record.success = StopReason.FAILED, error.what, None
    finally:
        seat.close()
    return Trajectory(
        id=place.id,
        group=place.group,
        member=place.member,
        attempt=place.attempt,
        env_id=stage.spec.id,
        env_version=stage.version,
        task=task.id,
        seed=place.seed,
        stop=record.stop,
        turns=tuple(record.turns),
        segments=seat.segments(),
        success=record.success,
        failure=record.failure,
        seconds=time.monotonic() - began,
        policy_s=record.policy_s,
        env_s=record.env_s,
        final_observation=record.final,
    )


async def _play(stage: Stage, seat: Seat, task: Task, place: Place, record: _Record) -> None:
    env = _Verbs(stage, record)
    try:
        observation, info = await env.reset(place.seed, task)
        for _ in range(stage.max_turns):
            anchor = info.get("anchor")
            reply = await _answer(seat, observation, stage.turn_deadline_s, record)
            if reply.finish is FinishReason.CONTEXT:
                return
            shown = observation
            observation, reward, terminated, truncated, info = await env.step(reply.text)
            record.turns.append(_turn(reply, shown, reward, anchor, info))
            record.final = observation
            if terminated or truncated:
                record.stop = StopReason.TERMINATED if terminated else StopReason.TRUNCATED
                break
        record.success = _success(stage.spec, info, sum(turn.reward for turn in record.turns))
    finally:
        await env.close()


async def _answer(seat: Seat, observation: str, deadline_s: float, record: _Record) -> Reply:
    began = time.monotonic()
    try:
        async with asyncio.timeout(deadline_s):
            return await seat.act(observation)
    except TimeoutError as error:
        raise EnvError(f"the policy did not answer within {deadline_s} s", mend="raise turn_deadline_s") from error
    finally:
        record.policy_s += time.monotonic() - began


def _turn(reply: Reply, observation: str, reward: float, anchor: str | None, info: dict[str, Any]) -> Turn:
    return Turn(
        segment=reply.segment,
        observation=reply.observation_span,
        reply=reply.reply_span,
        reward=reward,
        finish=reply.finish,
        anchor=anchor,
        reward_parts=info.get("reward_parts", NO_PARTS),
        texts=(observation, reply.text) if reply.segment < 0 else None,
    )


def _success(spec: EnvSpec, info: dict[str, Any], total: float) -> bool | None:
    if "success" in info:
        return bool(info["success"])
    return None if spec.success_reward is None else total >= spec.success_reward


class _Verbs:
    """An environment's verbs made async, timed and checked; whatever it raises becomes an EnvError."""

    def __init__(self, stage: Stage, record: _Record) -> None:
        self._stage, self._record = stage, record
        self._env: Env | AsyncEnv | None = None

    async def reset(self, seed: int, task: Task) -> tuple[str, dict[str, Any]]:
        self._env = await self._call("build", self._stage.make_env)
        given = await self._call("reset", self._env.reset, seed=seed, options={"task": dict(task.data)} if task.data else None)
        match given:
            case (str() as observation, dict() as info):
                return observation, info
        raise EnvError(f"{self._stage.spec.id}: reset gave {type(given).__name__}", mend="return (text, info)")

    async def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        assert self._env is not None
        given = await self._call("step", self._env.step, action)
        match given:
            case (str() as observation, reward, terminated, truncated, dict() as info):
                return observation, self._earned(reward), bool(terminated), bool(truncated), info
        raise EnvError(
            f"{self._stage.spec.id}: step gave {type(given).__name__}",
            mend="return (text, reward, terminated, truncated, info)",
        )

    async def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            await self._call("close", env.close)

    def _earned(self, reward: object) -> float:
        try:
            value = float(reward)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise EnvError(f"{self._stage.spec.id}: reward {reward!r} is no finite number", mend="return a finite float")
        if self._stage.spec.reward_kind is RewardKind.CUMULATIVE:
            value, self._record.total = value - self._record.total, value
        return value

    async def _call(self, verb: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._stage.turn_deadline_s):
                if self._stage.spec.inline:
                    given = function(*args, **kwargs)
                else:
                    loop = asyncio.get_running_loop()
                    given = await loop.run_in_executor(self._stage.threads, lambda: function(*args, **kwargs))
                return await given if inspect.isawaitable(given) else given
        except EpisodeError:
            raise
        except TimeoutError as error:
            raise EnvError(
                f"{self._stage.spec.id}: {verb} took over {self._stage.turn_deadline_s} s", mend="raise turn_deadline_s"
            ) from error
        except Exception as error:  # foreign code enters here
            raise EnvError(
                f"{self._stage.spec.id}: {verb} raised {type(error).__name__}: {error}", mend="mend the environment"
            ) from error
        finally:
            self._record.env_s += time.monotonic() - began


Player = Callable[[Task, Place], Awaitable[Trajectory]]
