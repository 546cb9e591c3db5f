"""One episode, from reset to its frozen record; the one place where a failed episode becomes data."""

import asyncio
import hashlib
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from envhub.envs.core import AsyncEnv, Env
from envhub.envs.spec import EnvSpec, RewardKind
from envhub.envs.tasks import Task
from envhub.errors import EnvError, EpisodeError
from envhub.policy.core import InsideSeat, Policy, Reply, Seat
from envhub.rollout.abort import Abort, Exchange
from envhub.rollout.scoring import RewardWorkers
from envhub.types import NO_PARTS, FinishReason, StopReason, Trajectory, Turn

EnvFactory = Callable[[], Env | AsyncEnv]
Played = tuple[Trajectory, Sequence[Exchange]]  # a seat's record, and its exchanges where somebody scores them


@dataclass(frozen=True, slots=True)
class Place:
    """Where an episode belongs: its id, group, member and attempt, and the seed of environment and sampler.

    `tell` hears what it waits for from now on: "reset", "policy", "step", "reward" and so on.
    """

    id: str
    group: str
    member: int
    attempt: int
    seed: int
    tell: Callable[[str], None] = field(default=lambda _: None, compare=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where episodes are played: the environment's spec and version, its factory, and the limits.

    In games of several players `seat` says where the policy that is taught or measured sits; None lets it take turns, by group,
    so that all episodes of one group compare equal seats. `opponents` fill the other seats in order, the last one as often as
    needed; none means that the policy plays against itself.
    """

    spec: EnvSpec
    version: str
    make_env: EnvFactory
    max_turns: int
    turn_deadline_s: float = 60.0
    threads: Executor | None = None  # runs the verbs of synchronous environments that are not `inline`
    seat: int | None = None
    opponents: tuple[Policy, ...] = ()
    remote: bool = False  # the environment's options are its server's
    rewards: RewardWorkers | None = None  # score an episode once environment and seat are free again
    abort: Abort | None = None  # ends hopeless episodes


@dataclass(slots=True)
class _Record:
    """What has happened so far in an episode, to everybody."""

    stop: StopReason = StopReason.TRUNCATED
    success: bool | None = None
    failure: str | None = None
    final: str = ""
    env_s: float = 0.0
    tell: Callable[[str], None] = lambda _: None


@dataclass(slots=True)
class _Sitting:
    """What has happened so far at one seat. `owed` was earned before the seat's first turn."""

    seat: Seat
    turns: list[Turn] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)  # where somebody scores them
    owed: float = 0.0
    total: float = 0.0
    policy_s: float = 0.0

    @property
    def earned(self) -> float:
        """All its rewards so far."""
        return self.owed + sum(turn.reward for turn in self.turns)

    def earn(self, reward: float) -> None:
        """Credit a reward to the seat's last turn."""
        if not reward:
            return
        if self.turns:
            self.turns[-1] = replace(self.turns[-1], reward=self.turns[-1].reward + reward)
        else:
            self.owed += reward


async def play(stage: Stage, policy: Policy, task: Task, place: Place) -> Trajectory:
    """Play one episode to its end. A broken environment or policy gives a failed trajectory; cancelling closes both.

    The record is token-exact: spans point into the seat's segments. In a game of several players it is that of the policy's
    own seat. Only here are episodes scored by the stage's reward workers.
    """
    count = stage.spec.players
    if count == 1:
        (only,) = await _play_seats(stage, (policy,), task, place)
        return await _scored(stage, only, task, place)
    mine = _turn_of(place.group, count) if stage.seat is None else stage.seat
    others = list(stage.opponents) or [policy]
    others += [others[-1]] * (count - 1 - len(others))
    policies = [*others[:mine], policy, *others[mine : count - 1]]
    own, exchanges = (await _play_seats(stage, policies, task, place))[mine]
    return await _scored(stage, (replace(own, id=place.id, group=place.group), exchanges), task, place)


async def _scored(stage: Stage, played: Played, task: Task, place: Place) -> Trajectory:
    trajectory, exchanges = played
    place.tell("reward")
    return trajectory if stage.rewards is None else await stage.rewards.apply(trajectory, task, exchanges)


async def play_seats(stage: Stage, policies: Sequence[Policy], task: Task, place: Place) -> tuple[Trajectory, ...]:
    """Play one episode with a policy for every seat, and give every seat's record; what breaks for one fails for all.

    With several seats their records have groups of their own, "<group>@<seat>", since only equal seats may be compared. A
    reward that others' moves bring is credited to the seat's last turn; a seat that never moved has no turns and no reward.
    """
    return tuple(trajectory for trajectory, _ in await _play_seats(stage, policies, task, place))


async def _play_seats(stage: Stage, policies: Sequence[Policy], task: Task, place: Place) -> tuple[Played, ...]:
    began = time.monotonic()
    record = _Record(tell=place.tell)
    names = [""] if len(policies) == 1 else [f"@{seat}" for seat in range(len(policies))]
    sittings = [
        _Sitting(policy.seat(episode=f"{place.id}{name}", seed=place.seed + i, instructions=stage.spec.instructions))
        for i, (policy, name) in enumerate(zip(policies, names, strict=True))
    ]
    try:
        await _play(stage, sittings, task, place, record)
    except EpisodeError as error:
        record.stop, record.failure, record.success = StopReason.FAILED, error.what, None
    finally:
        for sitting in sittings:
            sitting.seat.close()
    return tuple(
        (
            Trajectory(
                id=f"{place.id}{name}",
                group=f"{place.group}{name}",
                member=place.member,
                attempt=place.attempt,
                env_id=stage.spec.id,
                env_version=stage.version,
                task=task.id,
                seed=place.seed,
                stop=record.stop,
                turns=tuple(sitting.turns),
                segments=sitting.seat.segments(),
                success=_success(stage.spec, record, sitting),
                failure=record.failure,
                seconds=time.monotonic() - began,
                policy_s=sitting.policy_s,
                env_s=record.env_s,
                final_observation=record.final,
            ),
            sitting.exchanges,
        )
        for sitting, name in zip(sittings, names, strict=True)
    )


def _turn_of(group: str, count: int) -> int:
    return hashlib.blake2b(group.encode(), digest_size=4).digest()[0] % count


async def _play(stage: Stage, sittings: Sequence[_Sitting], task: Task, place: Place, record: _Record) -> None:
    env = _Verbs(stage, record)
    try:
        observation, info = await env.reset(place.seed, task)
        for sitting in sittings:
            if isinstance(sitting.seat, InsideSeat):
                sitting.seat.meet(env.env)
        for _ in range(stage.max_turns):
            anchor, sitting = info.get("anchor"), sittings[_player(stage, info, len(sittings))]
            record.tell("policy")
            reply = await _answer(sitting, observation, stage.turn_deadline_s)
            if reply.finish is FinishReason.CONTEXT:
                return
            shown = observation
            observation, reward, terminated, truncated, info = await env.step(reply.text)
            rewards = _rewards(stage, info, sittings, sitting, reward)
            sitting.turns.append(_turn(reply, shown, sitting.owed, anchor, info))
            if stage.rewards is not None or stage.abort is not None:
                sitting.exchanges.append((shown, reply.text))
            sitting.owed = 0.0
            for each, earned in zip(sittings, rewards, strict=True):
                each.earn(earned)
            record.final = observation
            if terminated or truncated:
                record.stop = StopReason.TERMINATED if terminated else StopReason.TRUNCATED
                break
            if stage.abort is not None and stage.abort(sitting.exchanges, sitting.earned) is not None:
                break
        record.success = bool(info["success"]) if "success" in info and len(sittings) == 1 else None
    finally:
        await env.close()


def _player(stage: Stage, info: dict[str, Any], count: int) -> int:
    player = info.get("player", 0) if count > 1 else 0
    if not isinstance(player, int) or not 0 <= player < count:
        raise EnvError(f"{stage.spec.id}: player {player!r} of {count}", mend='give the next mover as info["player"]')
    return player


def _rewards(stage: Stage, info: dict[str, Any], sittings: Sequence[_Sitting], mover: _Sitting, reward: object) -> list[float]:
    """What each seat earned by a step: the environment's list, or the step's reward for the one who moved."""
    if len(sittings) == 1 or "rewards" not in info:
        return [_earned(stage, each, reward) if each is mover else 0.0 for each in sittings]
    given = info["rewards"]
    if not isinstance(given, Sequence) or len(given) != len(sittings):
        raise EnvError(f"{stage.spec.id}: rewards {given!r}", mend=f"give {len(sittings)} numbers, one a seat")
    return [_earned(stage, each, value) for each, value in zip(sittings, given, strict=True)]


def _earned(stage: Stage, sitting: _Sitting, reward: object) -> float:
    try:
        value = float(reward)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise EnvError(f"{stage.spec.id}: reward {reward!r} is no finite number", mend="return a finite float")
    if stage.spec.reward_kind is RewardKind.CUMULATIVE:
        value, sitting.total = value - sitting.total, value
    return value


async def _answer(sitting: _Sitting, observation: str, deadline_s: float) -> Reply:
    began = time.monotonic()
    try:
        async with asyncio.timeout(deadline_s):
            return await sitting.seat.act(observation)
    except TimeoutError as error:
        raise EnvError(f"the policy did not answer within {deadline_s} s", mend="raise turn_deadline_s") from error
    finally:
        sitting.policy_s += time.monotonic() - began


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


def _success(spec: EnvSpec, record: _Record, sitting: _Sitting) -> bool | None:
    if record.stop is StopReason.FAILED or record.success is not None or spec.success_reward is None:
        return record.success
    return sum(turn.reward for turn in sitting.turns) >= spec.success_reward


class _Verbs:
    """An environment's verbs made async, timed and checked; whatever it raises becomes an EnvError."""

    def __init__(self, stage: Stage, record: _Record) -> None:
        self._stage, self._record = stage, record
        self.env: Env | AsyncEnv | None = None

    async def reset(self, seed: int, task: Task) -> tuple[str, dict[str, Any]]:
        self.env = await self._call("build", self._stage.make_env)
        given = await self._call("reset", self.env.reset, seed=seed, options={"task": dict(task.data)} if task.data else None)
        match given:
            case (str() as observation, dict() as info):
                return observation, info
        raise EnvError(f"{self._stage.spec.id}: reset gave {type(given).__name__}", mend="return (text, info)")

    async def step(self, action: str) -> tuple[str, object, bool, bool, dict[str, Any]]:
        assert self.env is not None
        given = await self._call("step", self.env.step, action)
        match given:
            case (str() as observation, reward, terminated, truncated, dict() as info):
                return observation, reward, bool(terminated), bool(truncated), info
        raise EnvError(
            f"{self._stage.spec.id}: step gave {type(given).__name__}",
            mend="return (text, reward, terminated, truncated, info)",
        )

    async def close(self) -> None:
        env, self.env = self.env, None
        if env is not None:
            await self._call("close", env.close)

    async def _call(self, verb: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        self._record.tell(verb)
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
