"""What a training run plays: its stage, and its tasks, from a stream or from a curriculum that success moves."""

from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import replace

from envhub.envs.curriculum import CurriculumStream, Ladder
from envhub.envs.mixture import MixedTasks
from envhub.envs.task_stream import TaskStream
from envhub.errors import ConfigError
from envhub.rollout.abort import Abort
from envhub.rollout.episode import Stage
from envhub.runs.config import TrainConfig
from envhub.runs.stage import build_stage, build_tasks
from envhub.types import Trajectory


def training_stage(config: TrainConfig, threads: Executor) -> Stage:
    """The stage that a run's `env` describes. Raises ConfigError."""
    env = config.env
    stage = build_stage(
        env.id,
        env.options,
        max_turns=env.max_turns,
        turn_deadline_s=config.rollout.turn_deadline_s,
        threads=threads,
        url=env.url,
        members=env.mixture,
        tasks=env.tasks,
        wrappers=env.wrappers,
        seat=env.seat,
        opponents=env.opponents,
        rewards=env.rewards,
        reward_weight=env.reward_weight,
    )
    abort = config.rollout.abort
    if abort is None:
        return stage
    if stage.spec.players > 1:
        raise ConfigError("rollout.abort is for environments of one player", mend="leave it out")
    return replace(stage, abort=Abort.of(abort))


def task_source(stage: Stage, config: TrainConfig) -> TaskStream | CurriculumStream:
    """The tasks of a run. Raises ConfigError for an unknown split or refused options."""
    wanted = config.env.curriculum
    if wanted is None:
        return build_tasks(stage, config.env.options, config.env.split, config.run.seed)
    assert stage.spec.tasks is not None
    tasks = stage.spec.tasks()
    assert isinstance(tasks, MixedTasks)
    ladder = Ladder(wanted.window, wanted.up, wanted.down, wanted.review)
    return CurriculumStream(tasks, config.env.split, config.run.seed, ladder)


def learn_from(tasks: TaskStream | CurriculumStream, played: Iterable[tuple[int, tuple[Trajectory, ...]]]) -> None:
    """Tell a curriculum of groups that were trained on or found constant: their place, and their episodes."""
    if isinstance(tasks, CurriculumStream):
        for index, trajectories in played:
            tasks.learn(index, sum(bool(t.success) for t in trajectories) / len(trajectories))
