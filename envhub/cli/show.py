"""`envhub show ID`: what an environment declares, and what it looks like."""

from typing import Annotated

import typer

from envhub.cli.output import print_json, print_table
from envhub.envs.core import Env
from envhub.envs.registry import load_spec, make
from envhub.errors import EnvError


def show_command(
    env_id: Annotated[str, typer.Argument(help="An id of `envhub list`.")],
    json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Show an environment's spec, task splits, baselines and first observation."""
    spec = load_spec(env_id)
    tasks = None if spec.tasks is None else spec.tasks(**spec.default_options)
    sizes = {} if tasks is None else {s: tasks.size(s) for s in tasks.splits}
    facts: dict[str, object] = {
        "id": spec.id,
        "summary": spec.summary,
        "instructions": spec.instructions,
        "splits": {name: "endless" if size is None else size for name, size in sizes.items()},
        "max_turns": spec.max_turns,
        "reward_range": list(spec.reward_range),
        "reward_kind": spec.reward_kind.value,
        "isolation": spec.isolation.value,
        "tags": list(spec.tags),
        "baselines": dict(spec.baselines),
        "observation": _first_observation(env_id),
    }
    if json:
        print_json(facts)
    else:
        print_table("", ["", env_id], [(name, str(value)) for name, value in facts.items()])


def _first_observation(env_id: str) -> str:
    env = make(env_id)
    if not isinstance(env, Env):
        return ""
    try:
        return env.reset(seed=0)[0]
    except Exception as error:  # foreign code enters here
        raise EnvError(f"{env_id}: reset raised {type(error).__name__}: {error}", mend="mend the environment") from error
    finally:
        env.close()
