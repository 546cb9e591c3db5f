"""`envhub show ID`: what an environment declares, and what it looks like."""

from typing import Annotated

import typer

from envhub.cli.output import print_json, print_table
from envhub.envs.core import Env
from envhub.envs.registry import load_spec, make


def show_command(
    env_id: Annotated[str, typer.Argument(help="An id of `envhub list`.")],
    json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Show an environment's spec, task splits, baselines and first observation."""
    spec = load_spec(env_id)
    tasks = None if spec.tasks is None else spec.tasks(**spec.default_options)
    sizes = {} if tasks is None else {s: tasks.size(s) for s in tasks.splits}
    env = make(env_id)
    observation = env.reset(seed=0)[0] if isinstance(env, Env) else ""
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
        "observation": observation,
    }
    if json:
        print_json(facts)
    else:
        print_table("", ["", env_id], [(name, str(value)) for name, value in facts.items()])
