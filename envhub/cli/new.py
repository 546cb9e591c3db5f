"""`envhub new`: a package with an environment that passes `envhub check` as it is."""

import keyword
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from envhub.errors import ConfigError

TEMPLATES = Path(__file__).parent / "templates"
SUMMARIES = {
    "game": "Climb to the goal and not past it.",
    "tool": "Find the lowest price by asking a tool.",
    "code": "Write a small program that fits its examples.",
    "question": "Answer one question.",
}
PYPROJECT = """\
[build-system]
requires = ["setuptools>=70"]
build-backend = "setuptools.build_meta"

[project]
name = "@NAME@"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["envhub-rl"]

[project.entry-points."envhub.environments"]
"@ID@" = "@MODULE@.env:SPEC"

[tool.setuptools]
packages = ["@MODULE@"]
package-data = { @MODULE@ = ["envhub.toml"] }
"""
LISTING = """\
["@ID@"]
summary = "@SUMMARY@"
tags = ["@TEMPLATE@"]
"""
README = """\
# @NAME@

@SUMMARY@

    pip install -e .
    envhub check @ID@
    envhub play @ID@
    envhub eval @ID@ --policy solver

The environment is `@MODULE@/env.py`; what `envhub list` says of it stands in `@MODULE@/envhub.toml`.
"""
TEST = """\
from envhub.envs.check import check
from @MODULE@.env import SPEC


def test_the_environment_keeps_every_rule() -> None:
    assert [(f.rule, f.detail) for f in check(SPEC, {}) if f.verdict == "failed"] == []
"""


class Template(StrEnum):
    """What the new environment is like."""

    GAME = "game"
    TOOL = "tool"
    CODE = "code"
    QUESTION = "question"


def new_command(
    name: Annotated[str, typer.Argument(help="Of the package: my-env.")],
    template: Annotated[Template, typer.Option(help="What it is like.")] = Template.GAME,
    into: Annotated[Path, typer.Option(help="Where the package's folder is made.")] = Path(),
) -> None:
    """Write a new environment package that passes `envhub check` as it is."""
    folder = write_package(name, template, into)
    env_id = _names(name)["@ID@"]
    typer.echo(f"{folder}\n\n  pip install -e {folder}\n  envhub check {env_id}\n  envhub play {env_id}")


def write_package(name: str, template: Template, into: Path) -> Path:
    """Write the package's folder and give it. Raises ConfigError for a bad name or an existing folder."""
    names = _names(name) | {"@TEMPLATE@": template.value, "@SUMMARY@": SUMMARIES[template.value]}
    folder, module = into / name, names["@MODULE@"]
    files = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"{module}/__init__.py": f'"""{SUMMARIES[template.value]}"""\n',
        f"{module}/env.py": (TEMPLATES / f"{template.value}.py.txt").read_text(encoding="utf-8"),
        f"{module}/envhub.toml": LISTING,
        "tests/test_env.py": TEST,
    }
    try:
        folder.mkdir(parents=True)
        for path, text in files.items():
            for mark, value in names.items():
                text = text.replace(mark, value)
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise ConfigError(f"{folder} exists", mend="choose another name, or another folder with --into") from error
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error}", mend="choose another folder with --into") from error
    return folder


def _names(name: str) -> dict[str, str]:
    module = name.replace("-", "_").lower()
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,60}", name) or name.endswith("-") or keyword.iskeyword(module):
        raise ConfigError(f"{name!r} is no name for a package", mend="use letters, digits and dashes: my-env")
    title = "".join(part.capitalize() for part in name.split("-"))
    return {"@NAME@": name, "@MODULE@": module, "@CLASS@": title, "@ID@": f"{name}/{title}-v1"}
