"""Neither the number of ranks nor the ZeRO stage changes what is learned."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file


def train(folder: Path, *, world: int, stage: int) -> dict[str, torch.Tensor]:
    out = folder / f"{world}-{stage}.safetensors"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(world):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **{k: str(v) for k, v in place.items()}, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.unit.rank_program", str(stage), str(out)]
        ranks.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for process in ranks:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return load_file(out)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return train(tmp_path_factory.mktemp("alone"), world=1, stage=0)


@pytest.mark.parametrize(("world", "stage"), [(2, 0), (2, 1), (2, 2), (1, 1)])
def test_ranks_and_stages_learn_the_same(tmp_path: Path, alone: dict[str, torch.Tensor], world: int, stage: int) -> None:
    found = train(tmp_path, world=world, stage=stage)
    assert found.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=2e-5)
