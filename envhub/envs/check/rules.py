"""All rules in the order they are tried. A rule's name is its function's, what it means its docstring's.

A rule raises `Failed` with what it saw, or `Skipped`; any other exception out of the environment is a failure too.
"""

from collections.abc import Callable

from envhub.envs.check.form import answers, gymnasium, hostile, tools
from envhub.envs.check.honesty import builds, close, gold, limits, rewards, surroundings
from envhub.envs.check.sameness import instances, reset, seeds, state, task_option, tasks
from envhub.envs.check.subject import Subject

RULES: tuple[Callable[[Subject], None], ...] = (
    builds,
    gymnasium,
    answers,
    seeds,
    reset,
    instances,
    tasks,
    task_option,
    hostile,
    rewards,
    limits,
    close,
    state,
    gold,
    tools,
    surroundings,
)
