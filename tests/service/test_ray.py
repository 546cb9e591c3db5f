"""Workers on a real Ray cluster of two machines (both are this one): played, lost and placed like those at home."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from ray.cluster_utils import Cluster

import envhub
from envhub.envs.registry import make
from envhub.errors import EnvError
from tests.served import Served, package, serve

LAKE = "game/FrozenLake-v1"
FRAIL = """
import os, time
from envhub import Env, EnvSpec

class Frail(Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return f"{os.getpid()} {os.getppid()}", {}
    def step(self, action):
        match action:
            case "die": os.kill(os.getpid(), 9)
            case "hang": time.sleep(60)
            case "eat":
                self.held = b"x" * (500 << 20)
                time.sleep(20)
        return action, 1.0, False, False, {}

SPEC = EnvSpec(id="t/Frail-v1", make=Frail, inline=True)
"""
FLEET = """
host: 127.0.0.1
ray: "{address}"
ray_open: true
fleets:
  - {{id: t/Frail-v1, workers: 1, step_deadline_s: 3, memory_mib: 300, placement: {{num_cpus: 1, resources: {{web: 1}}}}}}
  - {{id: game/FrozenLake-v1, workers: 1, options: {{size: 4}}, placement: {{num_cpus: 1}}}}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Cluster]]:
    folder = tmp_path_factory.mktemp("ray")
    site = package(folder / "site", "t/Frail-v1", FRAIL)
    os.environ["PYTHONPATH"] = str(site)  # of the cluster's machines: environments are installed there
    head = {"num_cpus": 1, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=2, resources={"web": 1})
        (folder / "fleet.yaml").write_text(FLEET.format(address=cluster.address))
        with serve("-c", str(folder / "fleet.yaml"), site=site) as found:
            yield found, cluster
    finally:
        del os.environ["PYTHONPATH"]
        cluster.shutdown()


def frail(served: tuple[Served, Cluster]) -> Any:
    """A fresh session, once a worker can be had."""
    deadline = time.monotonic() + 60
    while True:
        try:
            env: Any = envhub.connect(f"{served[0].url}/envs/t/Frail-v1")
            env.seen = env.reset(seed=1)[0]
            return env
        except EnvError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_an_environment_on_the_cluster_answers_as_the_local_one(served: tuple[Served, Cluster]) -> None:
    local: Any = make(LAKE, size=4)
    remote: Any = envhub.connect(f"{served[0].url}/envs/{LAKE}")
    assert remote.reset(seed=3) == local.reset(seed=3)
    for action in ("right", "down", "nonsense", "left", "down"):
        assert remote.step(action) == local.step(action)
    remote.close()


@pytest.mark.parametrize(("action", "cause"), [("die", "killed by signal 9"), ("hang", "hung"), ("eat", "out of memory")])
def test_a_child_that_is_lost_is_told_of_and_replaced(served: tuple[Served, Cluster], action: str, cause: str) -> None:
    env = frail(served)
    began = time.monotonic()
    with pytest.raises(EnvError, match=cause):
        env.step(action)
    assert time.monotonic() - began < 3 + 2
    child = int(env.seen.split()[0])
    again = frail(served)
    assert again.step("on")[0] == "on"
    again.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_actor_that_is_killed_takes_its_child_along_and_is_replaced(served: tuple[Served, Cluster]) -> None:
    env = frail(served)
    child, actor = map(int, env.seen.split())
    os.kill(actor, signal.SIGKILL)
    with pytest.raises(EnvError, match="lost with its Ray actor"):
        env.step("on")
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
    frail(served).close()


def test_a_machine_that_goes_away_costs_its_sessions_only(served: tuple[Served, Cluster]) -> None:
    found, cluster = served
    env = frail(served)
    lake: Any = envhub.connect(f"{found.url}/envs/{LAKE}")
    lake.reset(seed=1)
    machine = next(node for node in cluster.worker_nodes if _parent_of(env) in _tree(node))
    cluster.remove_node(machine)
    with pytest.raises(EnvError, match="lost with its Ray actor"):
        env.step("on")
    env = frail(served)  # on the other machine with that resource
    assert env.step("on")[0] == "on"
    assert httpx.get(f"{found.url}/ready").json()["fleets"]["t/Frail-v1"]["restarts"] >= 1
    env.close()


def _parent_of(env: Any) -> int:
    return int(env.seen.split()[1])


def _tree(node: Any) -> set[int]:
    """Processes of a machine: what its raylet started."""
    (info,) = node.all_processes[ray._private.ray_constants.PROCESS_TYPE_RAYLET]
    todo, found = [info.process.pid], set[int]()
    while todo:
        pid = todo.pop()
        found.add(pid)
        for task in Path(f"/proc/{pid}/task").iterdir():
            todo += map(int, (task / "children").read_text().split())
    return found


def test_a_cluster_that_obeys_anybody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """SRV-28."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(AssertionError, match="takes commands from anybody"), serve(LAKE, "--ray", "local"):
        pass


def test_no_cluster_is_told(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no Ray cluster"), serve(LAKE, "--ray", "127.0.0.1:1"):
        pass
