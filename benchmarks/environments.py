"""What EnvHub's faces cost: ratios of CPU time, measured side by side in one process, interleaved.

    python benchmarks/environments.py            prints a table; --json for programs

1. the text face of FrozenLake against Gymnasium's own step (target: at most 3 times)
2. a vector of 64 cheap environments against a plain loop over them (target: at least 90 % as fast), and Gymnasium's vector
3. `envhub list` with 200 entry points (target: under 0.5 s of CPU)
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium

from envhub.envs.registry import make
from envhub.envs.vector import SyncVector

ROUNDS = 15


def paired(one: Callable[[], None], other: Callable[[], None]) -> list[float]:
    """CPU time of `other` over that of `one`, a ratio a round."""
    ratios = []
    for _ in range(ROUNDS):
        times = []
        for function in (one, other):
            began = time.process_time()
            function()
            times.append(time.process_time() - began)
        ratios.append(times[1] / times[0])
    return ratios


def text_face() -> list[float]:
    """Text face over bare step, for FrozenLake; both reset when an episode ends."""
    bare, text = gymnasium.make("FrozenLake-v1"), make("gymnasium:FrozenLake-v1")
    words = ("left", "down", "right", "up")

    def loop(env: object, actions: tuple[object, ...]) -> Callable[[], None]:
        def run() -> None:
            env.reset(seed=0)
            for turn in range(4000):
                _, _, terminated, truncated, _ = env.step(actions[turn * 7 % 4])
                if terminated or truncated:
                    env.reset()

        return run

    return paired(loop(bare, (0, 1, 2, 3)), loop(text, words))


def vector() -> dict[str, list[float]]:
    """Speed of vectors of 64 over a plain loop that does the same."""
    found = {}
    for name, options in (("game/GuessNumber-v1", {}), ("game/FrozenLake-v1", {"size": 4})):
        envs = [make(name, **options) for _ in range(64)]
        ours = SyncVector([lambda n=name, o=options: make(n, **o)] * 64)
        theirs = gymnasium.vector.SyncVectorEnv([lambda n=name, o=options: make(n, **o)] * 64)
        actions = ["right" if "Lake" in name else "7"] * 64

        def plain(envs: list = envs, actions: list = actions) -> None:
            for index, env in enumerate(envs):
                env.reset(seed=index)
            ended = [False] * 64
            for _ in range(100):
                for index, env in enumerate(envs):
                    if ended[index]:
                        env.reset()
                        ended[index] = False
                    else:
                        _, _, terminated, truncated, _ = env.step(actions[index])
                        ended[index] = terminated or truncated

        def vectorised(vector: object, actions: object) -> Callable[[], None]:
            def run() -> None:
                vector.reset(seed=0)
                for _ in range(100):
                    vector.step(actions)

            return run

        found[f"EnvHub's vector of 64 {name}"] = [1 / r for r in paired(plain, vectorised(ours, actions))]
        found[f"Gymnasium's vector of 64 {name}"] = [1 / r for r in paired(plain, vectorised(theirs, tuple(actions)))]
    return found


def listing() -> list[float]:
    """CPU seconds of `envhub list` with 200 more entry points in 40 more packages."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(40):
            home, info = Path(folder, f"p{number}"), Path(folder, f"p{number}-1.0.dist-info")
            home.mkdir(), info.mkdir()
            (home / "__init__.py").write_text("raise RuntimeError('imported')")
            ids = [f"p{number}/E{i}-v1" for i in range(5)]
            (home / "env.py").write_text("")
            (home / "envhub.toml").write_text("".join(f'["{i}"]\nsummary = "An environment."\ntags = ["x"]\n' for i in ids))
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: p{number}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text("[envhub.environments]\n" + "".join(f"{i} = p{number}.env:S\n" for i in ids))
        seconds = []
        for _ in range(7):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "envhub.cli.main", "list"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": folder})
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert done.stdout.count("An environment.") == 200
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {"text face / bare step, FrozenLake (at most 3)": text_face()}
    found |= {f"{name} / plain loop (at least 0.9)": ratios for name, ratios in vector().items()}
    found["envhub list, 200 entry points, CPU s (under 0.5)"] = listing()
    rows = {name: (statistics.median(values), min(values), max(values)) for name, values in found.items()}
    if arguments.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        for name, (median, low, high) in rows.items():
            sys.stdout.write(f"{name:75} {median:6.3f}  [{low:.3f}, {high:.3f}]\n")


if __name__ == "__main__":
    main()
