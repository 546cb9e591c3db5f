"""Builds what every run needs of an environment: its stage, its tasks, and random play on them. Loads no torch."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from envhub.envs.registry import build, load_spec, package_version
from envhub.envs.task_stream import TaskStream
from envhub.envs.tasks import Task
from envhub.errors import ConfigError
from envhub.policy.scripted_policy import words_of
from envhub.rollout.episode import Stage
from envhub.rollout.random_play import RandomEpisode, play_randomly


def build_stage(
    env_id: str,
    options: Mapping[str, Any],
    *,
    max_turns: int | None = None,
    turn_deadline_s: float = 60.0,
    threads: Executor | None = None,
) -> Stage:
    """The stage of a registered environment.

    Raises:
        ConfigError: the id is unknown, its package is broken, or it refuses the options.
    """
    spec = load_spec(env_id)
    given = {**spec.default_options, **options}
    limit = spec.max_turns if max_turns is None else min(max_turns, spec.max_turns)
    return Stage(spec, package_version(env_id), lambda: build(spec, given), limit, turn_deadline_s, threads)


def build_tasks(stage: Stage, options: Mapping[str, Any], split: str, seed: int) -> TaskStream:
    """The endless stream of a split's tasks."""
    make = stage.spec.tasks
    try:
        tasks = None if make is None else make(**{**stage.spec.default_options, **options})
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


def random_episodes(stage: Stage, tasks: TaskStream, count: int, *, seed: int, first: int = 0) -> list[RandomEpisode]:
    """Random play on `count` tasks of the stream."""
    return [play_randomly(stage, tasks.at(first + i), seed=seed * 1_000_003 + first + i) for i in range(count)]


def vocabulary(episodes: Sequence[RandomEpisode], env_actions: Sequence[str]) -> tuple[str, ...]:
    """Every word that observations and replies are made of."""
    texts = [text for episode in episodes for pair in episode.exchanges for text in pair]
    return words_of([*texts, *env_actions])
