"""EnvHub: agentic environments, served and learned from. Names are loaded when first used; `import envhub` stays light."""

from importlib import import_module
from typing import Any

from envhub.gymnasium_ids import announce

__version__ = "0.1.0"

_HOMES = {
    "AsyncEnv": "envhub.envs",
    "Env": "envhub.envs",
    "EnvSpec": "envhub.envs",
    "GeneratedTasks": "envhub.envs",
    "ListTasks": "envhub.envs",
    "Part": "envhub.envs.rubrics",
    "Rubric": "envhub.envs.rubrics",
    "StateLevel": "envhub.envs.core",
    "Task": "envhub.envs",
    "ToolEnv": "envhub.envs.tools",
    "list_environments": "envhub.envs",
    "connect": "envhub.server.client",
    "connect_vector": "envhub.server.client",
    "load_spec": "envhub.envs",
    "make": "envhub.envs",
    "mixture": "envhub.envs.mixture",
    "register": "envhub.envs",
    "tasks_from": "envhub.envs.task_files",
    "tool": "envhub.envs.tools",
    "wrap": "envhub.envs.wrappers",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'envhub' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


announce()
