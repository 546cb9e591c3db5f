"""Builds what every run needs of an environment: its stage, its tasks, and random play on them. Loads no torch."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envhub.envs.core import AsyncEnv, Env
from envhub.envs.mixture import mixture
from envhub.envs.registry import build, load_spec, package_version
from envhub.envs.spec import EnvSpec
from envhub.envs.sync_face import on_loop
from envhub.envs.task_files import tasks_from
from envhub.envs.task_stream import TaskStream
from envhub.envs.tasks import Task
from envhub.envs.wrappers import build_lenses, wrapped_spec
from envhub.errors import ConfigError, EnvHubError, EpisodeError
from envhub.policy.core import Policy
from envhub.policy.scripted_policy import RandomPolicy, ScriptedPolicy, SolverPolicy, words_of
from envhub.rollout.episode import Stage
from envhub.rollout.random_play import RandomEpisode, play_randomly, play_randomly_beside
from envhub.rollout.scoring import RewardConfig, build_rewards

MODEL = "hf:"


def build_stage(
    env_id: str,
    options: Mapping[str, Any],
    *,
    max_turns: int | None = None,
    turn_deadline_s: float = 60.0,
    threads: Executor | None = None,
    url: str | None = None,
    members: Mapping[str, float | Mapping[str, Any]] | None = None,
    tasks: Path | None = None,
    wrappers: Sequence[dict[str, Any]] = (),
    seat: int | None = None,
    opponents: Sequence[str] = (),
    rewards: Sequence[RewardConfig] = (),
    reward_weight: float = 1.0,
) -> Stage:
    """The stage of a registered environment, or of a mixture, seen through the wrappers of a config and scored by its rewards.

    Raises:
        ConfigError: the id is unknown, its package is broken, it refuses the options, a wrapper, seat or reward makes no sense.
    """
    spec = mixture(env_id, members) if members else load_spec(url or env_id)
    if url is not None:
        _same_options(spec, env_id, options)
        options = {}
    if tasks is not None:
        found = tasks_from(tasks)
        spec = replace(spec, tasks=lambda **_: found)
    if wrappers:
        build_lenses(wrappers)
        spec = wrapped_spec(spec, lambda: build_lenses(wrappers))
    given = {} if url is not None else {**spec.default_options, **options}
    limit = spec.max_turns if max_turns is None else min(max_turns, spec.max_turns)
    stage = Stage(
        spec, package_version(env_id), lambda: build(spec, given), limit, turn_deadline_s, threads, seat, remote=url is not None
    )
    if (seat is not None and not 0 <= seat < spec.players) or (opponents and len(opponents) >= spec.players):
        raise ConfigError(f"{env_id} has {spec.players} seats", mend="give a seat from 0, and opponents for the other seats")
    for name in opponents:
        if not name.startswith(MODEL):
            light_policy(name, stage)  # raises for a name that is none, before anything is loaded
    return replace(stage, rewards=build_rewards(rewards, env_weight=reward_weight)) if rewards else stage


def _same_options(spec: EnvSpec, env_id: str, options: Mapping[str, Any]) -> None:
    """A run that says what it plays, and a server that says what it serves, must agree."""
    if spec.id != env_id or dict(spec.default_options) != dict(options):
        served = f"{spec.id} with {dict(spec.default_options)}"
        raise ConfigError(
            f"the server has {served}, the config {env_id} with {dict(options)}", mend="serve with the same options"
        )


@dataclass(frozen=True, slots=True)
class PlayerOptions:
    """How policies with a model sample."""

    temperature: float = 1.0
    max_tokens: int = 256


AT_ONCE = 64
DEFAULT_PLAYER = PlayerOptions()


def light_policy(name: str, stage: Stage) -> Policy:
    """The policy "random", "solver" or "scripted:FILE". Raises ConfigError."""
    kind, _, rest = name.partition(":")
    match kind:
        case "random":
            return RandomPolicy(_actions(stage))
        case "solver":
            if stage.spec.solver is None:
                raise ConfigError(f"{stage.spec.id} has no solver", mend="use another policy")
            return SolverPolicy(stage.spec.solver)
        case "scripted" if rest:
            return ScriptedPolicy.read(Path(rest))
    raise ConfigError(f"unknown policy {name!r}", mend="use random, solver, scripted:FILE or hf:FOLDER")


def _actions(stage: Stage) -> tuple[str, ...]:
    env = stage.make_env()
    if not isinstance(env, Env):
        return ()
    try:
        env.reset(seed=0)
        actions = env.legal_actions()
    finally:
        env.close()
    if not actions:
        raise ConfigError(f"{stage.spec.id} names no actions to draw from", mend="use another policy than random")
    return actions


def build_tasks(stage: Stage, options: Mapping[str, Any], split: str, seed: int) -> TaskStream:
    """The endless stream of a split's tasks."""
    make = stage.spec.tasks
    try:
        given = {} if stage.remote else {**stage.spec.default_options, **options}
        tasks = None if make is None else make(**given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{stage.spec.id} refuses its options: {error}", mend="see `envhub show`") from error
    return TaskStream(tasks, split, seed)


def held_out(stage: Stage, options: Mapping[str, Any], split: str, count: int) -> list[Task]:
    """The first `count` different tasks of a split, the same for every run; a small split is gone through again."""
    stream = build_tasks(stage, options, split, 0)
    found: dict[str, Task] = {}
    for place in range(20 * count):
        task = stream.at(place)
        found.setdefault(task.id, task)
        if len(found) == count:
            break
    different = list(found.values())
    return [different[place % len(different)] for place in range(count)]


class RandomPlay:
    """Random play on a stage. Served environments are waited for side by side, and keep their sessions between episodes."""

    def __init__(self, stage: Stage, tasks: TaskStream) -> None:
        """Play on `tasks`. Close it at the end."""
        self._stage, self._tasks = stage, tasks
        self._free: list[Env | AsyncEnv] = []

    def episodes(self, count: int, *, seed: int, first: int = 0) -> list[RandomEpisode]:
        """Play the `count` tasks of the stream from `first` on. Raises ConfigError where no actions are named."""
        chosen = [(self._tasks.at(first + i), seed * 1_000_003 + first + i) for i in range(count)]
        if not self._stage.remote:
            return [play_randomly(self._stage, task, seed=own) for task, own in chosen]
        try:
            return on_loop(self._beside(chosen))
        except* EnvHubError as errors:
            raise errors.exceptions[0] from None

    def close(self) -> None:
        """Give the sessions back."""
        free, self._free = self._free, []
        on_loop(_close_all(free))

    async def _beside(self, chosen: Sequence[tuple[Task, int]]) -> list[RandomEpisode]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(task: Task, own: int) -> RandomEpisode:
            async with turns:
                if self._free:
                    with contextlib.suppress(EpisodeError):  # its lease may have run out meanwhile
                        return await self._one(self._free.pop(), task, own)
                return await self._one(self._stage.make_env(), task, own)

        async with asyncio.TaskGroup() as group:
            playing = [group.create_task(one(task, own)) for task, own in chosen]
        return [task.result() for task in playing]

    async def _one(self, env: Env | AsyncEnv, task: Task, own: int) -> RandomEpisode:
        try:
            played = await play_randomly_beside(self._stage, env, task, seed=own)
        except BaseException:
            await _close_all([env])
            raise
        self._free.append(env)
        return played


async def _close_all(envs: Sequence[Env | AsyncEnv]) -> None:
    for env in envs:
        if isinstance(env, Env):
            await asyncio.to_thread(env.close)
        else:
            await env.close()


def random_episodes(stage: Stage, tasks: TaskStream, count: int, *, seed: int) -> list[RandomEpisode]:
    """Random play on the first `count` tasks of a stream."""
    with contextlib.closing(RandomPlay(stage, tasks)) as playing:
        return playing.episodes(count, seed=seed)


def vocabulary(episodes: Sequence[RandomEpisode], env_actions: Sequence[str]) -> tuple[str, ...]:
    """Every word that observations and replies are made of."""
    texts = [text for episode in episodes for pair in episode.exchanges for text in pair]
    return words_of([*texts, *env_actions])
