"""Rules of honesty: rewards, limits and solvers are what was declared, and nothing is left behind."""

import math
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from envhub.envs.check.subject import EPISODES, Failed, Skipped, Step, Subject, anything, play, solver_of
from envhub.envs.core import Env
from envhub.envs.spec import RewardKind
from envhub.envs.tasks import Task


def builds(subject: Subject) -> None:
    """the factory gives an environment, and refuses an option that it does not know"""
    subject.make().close()
    try:
        Subject(subject.spec, {**subject.options, "envhub_no_such_option": 1}).make().close()
    except Exception:
        return
    raise Failed("an unknown option is silently taken: a misspelt one would be too")


def rewards(subject: Subject) -> None:
    """an episode's total reward stays within the declared bounds, and nothing is earned after the end"""
    low, high = subject.spec.reward_range
    slack = 1e-6 * (1 + abs(low) + abs(high))
    for seed, task in enumerate(subject.tasks(EPISODES * 2)):
        for choose in filter(None, (anything, solver_of(subject.spec))):
            env = subject.make()
            try:
                episode = play(env, task, seed, choose, subject.spec.max_turns)
                cumulative = subject.spec.reward_kind is RewardKind.CUMULATIVE
                total = float(episode.steps[-1].reward) if cumulative else episode.total
                if not low - slack <= total <= high + slack:
                    raise Failed(f"an episode earned {total:g}, outside the declared {low:g} to {high:g}")
                if episode.steps[-1].over:
                    _nothing_more(env, episode.actions[-1], total if cumulative else 0.0)
            finally:
                env.close()


def _nothing_more(env: Env, action: str, already: float) -> None:
    try:
        step = Step(*env.step(action))
    except Exception:
        return  # refusing is fine
    if float(step.reward) > already:
        raise Failed(f"a step after the end earned {step.reward:g}")


def limits(subject: Subject) -> None:
    """an episode can be played to its end or to max_turns"""
    (task,) = subject.tasks(1)
    env = subject.make()
    try:
        episode = play(env, task, 0, anything, min(subject.spec.max_turns, 300))
    finally:
        env.close()
    if subject.spec.max_turns < 1 or len(episode.actions) < 1:
        raise Failed(f"max_turns is {subject.spec.max_turns}")


def close(subject: Subject) -> None:
    """close works before reset, twice, in mid-episode and after the end; files, threads and processes are given back"""
    (task,) = subject.tasks(1)

    def once() -> None:
        for turns in (-1, 0, 1, 50):
            env = subject.make()
            if turns >= 0:
                play(env, task, 0, anything, turns)
            env.close()
            env.close()

    once()  # whatever is loaded once and kept
    before = _held()
    for _ in range(5):
        once()
    after = _held()
    for name, kept in before.items():
        if after[name] > kept + 4:
            raise Failed(f"20 environments, all closed, left {after[name] - kept} {name}")


def _held() -> dict[str, int]:
    descriptors, children = Path("/proc/self/fd"), Path("/proc/self/task")
    pids = [p / "children" for p in children.iterdir()] if children.exists() else []
    return {
        "threads": threading.active_count(),
        "files": len(os.listdir(descriptors)) if descriptors.exists() else 0,
        "processes": sum(len(p.read_text().split()) for p in pids if p.exists()),
    }


def gold(subject: Subject) -> None:
    """the solver reaches its declared success, and empty replies never solve a task"""
    spec, count = subject.spec, 20
    if spec.players > 1:
        raise Skipped("success depends on the other players")
    for seed, task in enumerate(subject.tasks(EPISODES)):
        if _solved(subject, task, seed, lambda env, chance: ""):
            raise Failed("an episode of empty replies counts as solved")
    solve = solver_of(spec)
    if solve is None:
        raise Skipped("there is no solver; empty replies solve nothing")
    wanted = spec.baselines.get("solver", 1.0)
    solved = sum(_solved(subject, task, seed, solve) for seed, task in enumerate(subject.tasks(count)))
    margin = 0.0 if wanted == 1.0 else 3.3 * math.sqrt(wanted * (1 - wanted) / count) + 1 / count
    if abs(solved / count - wanted) > margin:
        raise Failed(f"the solver solved {solved} of {count} tasks; declared is {wanted:g}")


def _solved(subject: Subject, task: Task, seed: int, choose: Callable[[Env, random.Random], str]) -> bool:
    env = subject.make()
    try:
        episode = play(env, task, seed, choose, subject.spec.max_turns)
    finally:
        env.close()
    last = episode.steps[-1]
    if "success" in last.info:
        return bool(last.info["success"])
    return subject.spec.success_reward is not None and episode.total >= subject.spec.success_reward


def surroundings(subject: Subject) -> None:
    """the working folder, environment variables and the global random generators are left alone"""
    env = subject.make()
    (task,) = subject.tasks(1)
    before = _surroundings()
    try:
        play(env, task, 0, anything)
    finally:
        env.close()
    changed = [name for name, value in _surroundings().items() if value != before[name]]
    if changed:
        raise Failed(f"playing changes {', '.join(changed)}")


def _surroundings() -> dict[str, object]:
    return {
        "the working folder": os.getcwd(),
        "environment variables": dict(os.environ),
        "the state of `random`": random.getstate(),
        "the state of `numpy.random`": str(np.random.get_state()),
    }
