"""What an environment is, how it is found by name, and where its tasks come from."""

from envhub.envs.core import AsyncEnv, Env, StateLevel
from envhub.envs.registry import list_environments, load_spec, make, register
from envhub.envs.spec import EnvSpec, Isolation, RewardKind
from envhub.envs.task_stream import TaskStream
from envhub.envs.tasks import GeneratedTasks, ListTasks, Task, TaskSet

__all__ = [
    "AsyncEnv",
    "Env",
    "EnvSpec",
    "GeneratedTasks",
    "Isolation",
    "ListTasks",
    "RewardKind",
    "StateLevel",
    "Task",
    "TaskSet",
    "TaskStream",
    "list_environments",
    "load_spec",
    "make",
    "register",
]
