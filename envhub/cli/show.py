"""`envhub show ID`: what an environment declares, and what it looks like."""

from typing import Annotated, Any

import typer

from envhub.cli.options import parse_options
from envhub.cli.output import print_json, print_table
from envhub.envs.core import Env
from envhub.envs.listing import find
from envhub.envs.registry import build, load_spec
from envhub.envs.spec import EnvSpec
from envhub.envs.sync_face import SyncFace
from envhub.envs.tasks import Task
from envhub.errors import EnvError


def show_command(
    env_id: Annotated[str, typer.Argument(help="An id of `envhub list`, an adapter's id, or a URL.")],
    option: Annotated[list[str], typer.Option(help="key=value for the environment.")] = [],  # noqa: B006
    json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Show an environment's spec, task splits, tools, limits, rewards, baselines and first observation."""
    spec = load_spec(env_id)
    options = {**spec.default_options, **parse_options(option)}
    tasks = None if spec.tasks is None else spec.tasks(**options)
    sizes = {} if tasks is None else {s: tasks.size(s) for s in tasks.splits}
    facts: dict[str, object] = {
        "id": spec.id,
        "package": " ".join(f"{listed.package} {listed.version}" for listed in find(env_id)) or "(none)",
        "summary": spec.summary,
        "instructions": spec.instructions,
        "splits": {name: "endless" if size is None else size for name, size in sizes.items()},
        "players": spec.players,
        "tools": list(spec.tools),
        "max_turns": spec.max_turns,
        "reward_range": list(spec.reward_range),
        "reward_kind": spec.reward_kind.value,
        "success_reward": spec.success_reward,
        "isolation": spec.isolation.value,
        "tags": list(spec.tags),
        "baselines": dict(spec.baselines),
        "solver": spec.solver is not None,
        "options": options,
    }
    facts |= _first(spec, options, None if tasks is None else tasks.get(tasks.splits[0], 0))
    if json:
        print_json(facts)
        return
    names = [f"{tool['function']['name']}: {tool['function']['description']}" for tool in spec.tools]
    shown = facts | {"tools": "\n".join(names) or "none"}
    print_table("", ["", env_id], [(name, str(value)) for name, value in shown.items()])


def _first(spec: EnvSpec, options: dict[str, Any], task: Task | None) -> dict[str, object]:
    """The first observation of the first task, and what a snapshot of the environment holds."""
    made = build(spec, options)
    env = made if isinstance(made, Env) else SyncFace(made)
    try:
        given = {"task": dict(task.data)} if task is not None and task.data else None
        return {"state_level": env.state_level.value, "observation": env.reset(seed=0, options=given)[0]}
    except Exception as error:  # foreign code enters here
        raise EnvError(f"{spec.id}: reset raised {type(error).__name__}: {error}", mend="mend the environment") from error
    finally:
        env.close()
