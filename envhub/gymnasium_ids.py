"""Every environment's id made known to Gymnasium, so that `gymnasium.make("envhub:game/FrozenLake-v1")` works.

Gymnasium imports the module before the colon and then looks the id up, so `import envhub` calls `announce`; nothing of the
environments' packages is imported until one is made.
"""

import contextlib
from importlib.metadata import entry_points

import gymnasium
from gymnasium.envs.registration import EnvSpec

GROUP = "envhub.environments"


def announce() -> None:
    """Register the ids of all installed environments with Gymnasium. An id that Gymnasium cannot take is left out."""
    for env_id in {point.name for point in entry_points(group=GROUP)} - set(gymnasium.registry):
        with contextlib.suppress(gymnasium.error.Error):
            gymnasium.registry[env_id] = EnvSpec(
                env_id, "envhub.envs.sync_face:make_sync", disable_env_checker=True, kwargs={"env_id": env_id}
            )  # `gymnasium.register` scans the whole registry each time: 0.2 s for 200 ids
