"""Environment packages as people install them: found without an import, broken ones named, conflicting ones kept apart."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from envhub.cli.new import Template

SPEC = """from envhub import Env, EnvSpec
{before}

class E(Env): ...

SPEC = EnvSpec(id="{id}", make=E, summary="from Python")
"""
PINNED = """import toolz
from envhub import Env, EnvSpec, ListTasks

class E(Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return toolz.__version__, {{}}

    def step(self, action):
        right = action == toolz.__version__
        return toolz.__version__, float(right), True, False, {{"success": right}}

    def legal_actions(self):
        return (toolz.__version__,)

SPEC = EnvSpec(id="{id}", make=E, max_turns=1, tasks=lambda: ListTasks({{"test": [{{"n": 1}}]}}))
"""
LISTING = """["{id}"]
summary = "v"
runtime = "venv"
requirements = ["toolz=={version}"]
"""


def package(site: Path, name: str, env_id: str, *, before: str = "", listing: str | None = None, module: bool = True) -> None:
    """An installed package, as pip leaves it: a module and the metadata beside it."""
    home, info = site / name.replace("-", "_"), site / f"{name.replace('-', '_')}-1.5.dist-info"
    home.mkdir(parents=True)
    info.mkdir()
    (home / "__init__.py").write_text("raise RuntimeError('listing must not import')\n" if before == "IMPORT" else "")
    if module:
        (home / "env.py").write_text(SPEC.format(id=env_id, before=before))
    if listing is not None:
        (home / "envhub.toml").write_text(listing)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[envhub.environments]\n{env_id} = {home.name}.env:SPEC\n")


def envhub(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envhub.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONPATH": str(site)} | environment,
    )


def listed(site: Path, *arguments: str) -> Mapping[str, Mapping[str, object]]:
    return {entry["id"]: entry for entry in json.loads(envhub(site, "list", "--json", *arguments).stdout)}


def test_a_package_is_listed_with_its_facts_and_without_an_import(tmp_path: Path) -> None:
    package(tmp_path, "a-one", "a/One-v1", before="IMPORT", listing='["a/One-v1"]\nsummary = "It is one."\ntags = ["x"]\n')
    found = listed(tmp_path)["a/One-v1"]
    assert (found["summary"], found["tags"], found["package"], found["version"]) == ("It is one.", ["x"], "a-one", "1.5")
    assert found["problem"] == ""
    assert set(listed(tmp_path, "--tag", "x")) == {"a/One-v1"}


def test_a_broken_package_is_listed_with_its_error_and_breaks_no_other(tmp_path: Path) -> None:
    package(tmp_path, "a-import", "a/Import-v1", before="import no_such_module_here")
    package(tmp_path, "a-exit", "a/Exit-v1", before="raise SystemExit(3)")
    package(tmp_path, "a-gone", "a/Gone-v1", module=False)
    package(tmp_path, "a-listing", "a/Listing-v1", listing='["a/Listing-v1"]\nsumary = "x"\n')
    package(tmp_path, "a-toml", "a/Toml-v1", listing="][")
    package(tmp_path, "a-good", "a/Good-v1")
    found = listed(tmp_path)
    assert found["a/Gone-v1"]["problem"] == "no module named 'a_gone.env'"
    assert "unknown key 'sumary'" in str(found["a/Listing-v1"]["problem"])
    assert "envhub.toml" in str(found["a/Toml-v1"]["problem"])
    assert found["a/Good-v1"]["problem"] == found["a/Import-v1"]["problem"] == ""
    checked = listed(tmp_path, "--check")
    assert "no_such_module_here" in str(checked["a/Import-v1"]["problem"])
    assert "SystemExit: 3" in str(checked["a/Exit-v1"]["problem"])
    assert (checked["a/Good-v1"]["problem"], checked["a/Good-v1"]["summary"]) == ("", "from Python")
    assert envhub(tmp_path, "list", "--check").returncode == 1
    assert envhub(tmp_path, "list").returncode == 0
    told = envhub(tmp_path, "show", "a/Gone-v1")
    assert (told.returncode, "package a-gone is broken" in told.stderr) == (2, True)


def test_two_packages_with_one_id_are_an_error_that_names_both(tmp_path: Path) -> None:
    package(tmp_path, "b-one", "b/Same-v1")
    package(tmp_path, "b-two", "b/Same-v1")
    done = envhub(tmp_path, "list")
    assert done.returncode == 1
    assert "BROKEN: claimed by b-one and b-two" in done.stdout
    shown = envhub(tmp_path, "show", "b/Same-v1")
    assert (shown.returncode, "'b/Same-v1' is claimed by b-one and b-two" in shown.stderr) == (2, True)


def test_gymnasium_makes_what_is_installed() -> None:
    program = (
        "import envhub, gymnasium\nenv = gymnasium.make('envhub:game/FrozenLake-v1', size=3)\n"
        "print(len(env.reset(seed=1)[0].splitlines()), env.step('right')[1])"
    )
    for start in ("", "import envhub, envhub.envs\n", "import gymnasium\n"):
        done = subprocess.run([sys.executable, "-c", start + program], capture_output=True, text=True, check=True)
        assert done.stdout == "3 0.0\n"


@pytest.mark.parametrize("template", list(Template))
def test_a_new_package_is_short_and_passes_the_check_as_it_is(tmp_path: Path, template: Template) -> None:
    made = envhub(tmp_path, "new", "my-env", "--template", template.value, "--into", str(tmp_path))
    assert made.returncode == 0
    folder = tmp_path / "my-env"
    assert len((folder / "my_env" / "env.py").read_text().splitlines()) <= 40
    site = tmp_path / "site"
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", *install, str(folder)], check=True, capture_output=True)
    assert listed(site)["my-env/MyEnv-v1"]["tags"] == [template.value]
    done = envhub(site, "check", "my-env/MyEnv-v1", "--json")
    told = json.loads(done.stdout)
    assert [(f["rule"], f["detail"]) for f in told["findings"] if f["verdict"] == "failed"] == []
    assert {f["rule"] for f in told["findings"] if f["verdict"] == "skipped"} <= {"tools"}
    solved = json.loads(envhub(site, "eval", "my-env/MyEnv-v1", "--policy", "solver", "--episodes", "20", "--json").stdout)
    assert (solved["success_rate"], solved["failed"]) == (1.0, 0)
    own = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "tests")],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(site)},
    )  # fmt: skip
    assert "1 passed" in own.stdout


@pytest.mark.parametrize("name", ["my_env", "-x", "class", "a b", "../up", "x" * 80, "é"])
def test_a_bad_name_writes_nothing(tmp_path: Path, name: str) -> None:
    done = envhub(tmp_path, "new", "--into", str(tmp_path / "in"), "--", name)
    assert (done.returncode, "is no name for a package" in done.stderr) == (2, True)
    assert not (tmp_path / "in").exists()


def test_conflicting_pins_are_played_in_one_run(tmp_path: Path) -> None:
    """Two packages want two versions of one dependency; each runs in a process with a virtual environment of its own."""
    versions = {"p/Old-v1": "0.11.2", "p/New-v1": "0.12.1"}
    for env_id, version in versions.items():
        name = f"p-{env_id[2:5].lower()}"
        package(tmp_path, name, env_id, listing=LISTING.format(id=env_id, version=version))
        (tmp_path / name.replace("-", "_") / "env.py").write_text(PINNED.format(id=env_id))
    home = {"ENVHUB_HOME": str(tmp_path / "home")}
    unbuilt = envhub(tmp_path, "show", "p/Old-v1", **home)
    assert (unbuilt.returncode, "envhub setup p/Old-v1" in unbuilt.stderr) == (2, True)
    built = envhub(tmp_path, "setup", **home)
    assert (built.returncode, built.stdout.count(str(tmp_path / "home"))) == (0, 2), built.stderr
    program = (
        "from envhub import make\nenvs = [make(i) for i in ('p/Old-v1', 'p/New-v1')]\n"
        "print([env.reset(seed=0)[0] for env in envs], [env.step(v)[1] for env, v in zip(envs, ('0.11.2', '0.12.1'))])\n"
        "[env.close() for env in envs]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)} | home,
    )  # fmt: skip
    assert done.stdout == "['0.11.2', '0.12.1'] [1.0, 1.0]\n"
    shown = json.loads(envhub(tmp_path, "show", "p/New-v1", "--json", **home).stdout)
    assert (shown["splits"], shown["observation"]) == ({"test": 1}, "0.12.1")
    played = envhub(tmp_path, "eval", "p/Old-v1", "--policy", "random", "--episodes", "3", "--json", **home)
    assert json.loads(played.stdout)["success_rate"] == 1.0
