"""Rules of sameness: equal seeds, tasks and actions give equal episodes, whatever else goes on."""

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from envhub.envs.check.form import HOSTILE
from envhub.envs.check.subject import EPISODES, Failed, Skipped, Step, Subject, anything, begin, follow, play, solver_of
from envhub.envs.core import StateLevel
from envhub.envs.tasks import Task


def seeds(subject: Subject) -> None:
    """equal seeds and actions give equal episodes, whatever the global random generators hold"""
    for seed, task in enumerate(subject.tasks(EPISODES)):
        episodes = []
        for run in (0, 1):
            random.seed(run)
            np.random.seed(run)
            env = subject.make()
            try:
                episodes.append(play(env, task, seed, anything))
            finally:
                env.close()
        _same(episodes[0].steps, episodes[1].steps, f"seed {seed} played twice")


def reset(subject: Subject) -> None:
    """nothing of an episode is left after reset"""
    used = subject.make()
    try:
        for seed, task in enumerate(subject.tasks(EPISODES)):
            for other in (*HOSTILE[:3], "1"):
                used.step(other) if seed else None
            dirty = play(used, task, seed, anything)
            fresh = subject.make()
            try:
                clean = begin(fresh, task, seed)
                _same(dirty.steps, [clean, *follow(fresh, dirty.actions)], f"episode {seed} in a used environment")
            finally:
                fresh.close()
            play(used, task, seed + 100, anything, turns=seed + 1)
    finally:
        used.close()


def instances(subject: Subject) -> None:
    """environments played at once, in turns and in threads, do not touch one another"""
    tasks = subject.tasks(EPISODES)
    alone = [_alone(subject, task, seed) for seed, task in enumerate(tasks)]
    envs = [subject.make() for _ in tasks]
    try:
        seen = [[begin(env, task, seed)] for seed, (env, task) in enumerate(zip(envs, tasks, strict=True))]
        for turn in range(max(len(episode.actions) for episode in alone)):
            for env, episode, steps in zip(envs, alone, seen, strict=True):
                if turn < len(episode.actions):
                    steps.append(Step(*env.step(episode.actions[turn])))
    finally:
        for env in envs:
            env.close()
    for episode, steps in zip(alone, seen, strict=True):
        _same(episode.steps, steps, "an episode played in turns with others")
    with ThreadPoolExecutor(EPISODES) as pool:
        threaded = list(pool.map(lambda pair: _alone(subject, pair[1], pair[0]), enumerate(tasks)))
    for episode, again in zip(alone, threaded, strict=True):
        _same(episode.steps, again.steps, "an episode played beside others in threads")


def _alone(subject: Subject, task: Task, seed: int) -> Any:
    env = subject.make()
    try:
        return play(env, task, seed, anything)
    finally:
        env.close()


def tasks(subject: Subject) -> None:
    """tasks repeat, carry the hash of their content, are plain, and splits share none"""
    found, again = subject.task_set(), subject.task_set()
    if found is None or again is None:
        raise Skipped("there is no task set")
    seen: dict[str, set[str]] = {}
    for split in found.splits:
        size = found.size(split)
        places = range(min(40, 40 if size is None else size))
        if not places:
            raise Failed(f"split {split!r} is empty")
        for place in places:
            task = found.get(split, place)
            if task != again.get(split, place):
                raise Failed(f"task {place} of {split!r} differs when asked for again")
            if Task.of(json.loads(json.dumps(task.data, allow_nan=False))).id != task.id:
                raise Failed(f"task {place} of {split!r} is not plain JSON, or its id is not its content's hash")
            seen.setdefault(split, set()).add(task.id)
    for one in seen:
        for other in seen:
            shared = seen[one] & seen[other]
            if one < other and shared:
                raise Failed(f"{one!r} and {other!r} share task {sorted(shared)[0]}")


def task_option(subject: Subject) -> None:
    """the task given to reset is the one that is played"""
    chosen = [task for task in subject.tasks(8) if task.data]
    if len({task.id for task in chosen}) < 2:
        raise Skipped("tasks hold nothing")
    env = subject.make()
    try:
        players = filter(None, (anything, solver_of(subject.spec)))  # what a solver does tells of a hidden task too
        episodes = [[play(env, task, 0, choose) for task in chosen] for choose in players]
    finally:
        env.close()
    if all(one == alike[0] for alike in episodes for one in alike):
        if all(set(task.data) == {"seed"} for task in chosen):
            raise Skipped("tasks are seeds, and seeds make no difference here")
        raise Failed(f"{len(chosen)} different tasks are shown and answered alike")


def state(subject: Subject) -> None:
    """snapshot, restore and fork give identical futures, at the declared level"""
    env = subject.make()
    try:
        if env.state_level is StateLevel.NONE:
            raise Skipped("it declares no snapshots")
        for seed, task in enumerate(subject.tasks(EPISODES)):
            rest = play(env, task, seed, anything).actions
            begin(env, task, seed)
            done = follow(env, rest[: len(rest) // 2])
            if done and done[-1].over:
                continue
            rest = rest[len(rest) // 2 :]
            snapshot, twin = env.snapshot(), env.fork()
            future = follow(env, rest)
            _same(future, follow(twin, rest), "the future of a fork")
            env.restore(snapshot)
            _same(future, follow(env, rest), "the future after restore")
            other = subject.make()
            begin(other, task, seed + 1)
            other.restore(snapshot)
            _same(future, follow(other, rest), "the future of another instance after restore")
            other.close()
            twin.close()
    finally:
        env.close()


def _same(one: Sequence[Step], other: Sequence[Step], what: str) -> None:
    for turn, (left, right) in enumerate(zip(one, other, strict=False)):
        for name in ("observation", "reward", "terminated", "truncated", "info"):
            if getattr(left, name) != getattr(right, name):
                raise Failed(f"{what}: {name} {turn} is {_short(getattr(right, name))}, not {_short(getattr(left, name))}")
    if len(one) != len(other):
        raise Failed(f"{what}: {len(other)} answers, not {len(one)}")


def _short(value: object) -> str:
    return repr(value)[:80]
