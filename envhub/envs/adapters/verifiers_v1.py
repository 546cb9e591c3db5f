"""Task sets of verifiers 0.4 (`Taskset`, `Task`): `verifiers1:my_taskset`, hosted unchanged.

One exchange: the task's prompt is the observation, the reply the answer, and the task's own rewards score the trace. Tasks that
need a harness, tool servers or a box (`toolsets`, an image) are refused: those run in verifiers' own loop.
"""

import asyncio
import itertools
from functools import cache
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, SystemMessage, UserMessage
from verifiers.v1.utils.loaders import load_taskset

from envhub.envs.core import Env, Info
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import ListTasks, TaskSet
from envhub.errors import ConfigError, EnvError

MOST_TASKS = 100_000
LONGEST_REPLY = 262_144


class VerifiersTask(Env):
    """One exchange about one task of a task set."""

    def __init__(self, name: str) -> None:
        """The tasks are loaded once a process."""
        self._tasks = loaded(name)
        self._task: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Ask the task at the place that is given, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        place = int(task["place"]) if task else int(self.np_random.integers(len(self._tasks)))
        self._task = self._tasks[place]
        data = self._task.data
        return "\n\n".join(filter(None, (data.system_prompt, data.prompt_text))), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Score the reply; the episode is over."""
        task, self._task = self._task, None
        if task is None:
            return "The episode is over.", 0.0, True, False, {"illegal": True}
        trace = trace_of(task, action[-LONGEST_REPLY:].encode("utf-8", "replace").decode())
        try:
            asyncio.run(task.score(trace))
        except Exception as error:
            raise EnvError(f"verifiers raised {type(error).__name__}: {error}", mend="mend the task set") from error
        parts = {name: float(reward.score) for name, reward in trace.rewards.items() if reward is not None}
        reward = float(trace.reward)
        return "", reward, True, False, {"success": reward >= 1.0, "reward_parts": parts}


def trace_of(task: Any, answer: str) -> Any:
    """The trace of one exchange, as verifiers' own rollout would have recorded it."""
    data = task.data
    messages: list[Any] = [SystemMessage(content=data.system_prompt)] if data.system_prompt else []
    messages.append(UserMessage(content=data.prompt_text))
    nodes = [MessageNode(message=message, parent=place - 1 if place else None) for place, message in enumerate(messages)]
    nodes.append(MessageNode(message=AssistantMessage(content=answer), parent=len(nodes) - 1, sampled=True))
    about = TraceTask(type=type(task).__name__, data=data, key=task.key, hash=task.hash)
    trace = Trace(task=about, agent=AgentInfo(config=AgentConfig(model="envhub")), nodes=nodes)
    trace.is_completed = trace.ok = True
    return trace


@cache
def loaded(name: str) -> list[Any]:
    """The tasks of an installed task set. Raises ConfigError for one that a single exchange cannot play."""
    try:
        taskset = load_taskset(vf.TasksetConfig(id=name))
        tasks = list(itertools.islice(taskset, MOST_TASKS))
    except Exception as error:  # foreign code enters here
        raise ConfigError(f"verifiers cannot load {name!r}: {type(error).__name__}: {error}", mend="install it") from error
    if not tasks:
        raise ConfigError(f"the task set {name} is empty", mend="choose another")
    first = tasks[0]
    if type(first).toolsets(first.config) or first.data.image is not None or first.data.prompt is None:
        raise ConfigError(f"{name} needs verifiers' own loop: tools, a box or a user", mend="run it with vf-eval")
    return tasks


def spec(rest: str) -> EnvSpec:
    """The spec of an installed task set. Raises ConfigError if there is none."""
    count = len(loaded(rest))

    def tasks(**_: Any) -> TaskSet:
        return ListTasks({"train": [{"place": i, "key": str(loaded(rest)[i].key)} for i in range(count)]})

    return EnvSpec(
        id=f"verifiers1:{rest}",
        make=lambda: VerifiersTask(rest),
        summary=f"The verifiers task set {rest}.",
        tasks=tasks,
        max_turns=1,
        success_reward=1.0,
        reward_range=(-1e6, 1e6),
        tags=("verifiers", "single-turn"),
    )
