"""What one rank of a distributed training does: three updates, then rank 0 writes its weights. Run by test_distributed.py."""

import sys
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from envhub.policy.models import ModelInit, build
from envhub.trainer.config import AlgorithmConfig, TrainerConfig
from envhub.trainer.engine import TrainEngine, stop_distributed
from envhub.trainer.packing import pack
from envhub.trainer.recipe import grpo_loss
from tests.unit.test_training import sequences


def main(stage: str, out: str) -> None:
    """Train at a ZeRO stage; five packs, so that two ranks have unequal shares."""
    torch.set_num_threads(1)
    init = ModelInit.model_validate({"hidden_size": 16, "layers": 2, "heads": 2, "intermediate_size": 32})
    config = TrainerConfig.model_validate({"zero_stage": int(stage), "max_grad_norm": 0.05})
    engine = TrainEngine(build(init, [f"w{i}" for i in range(20)], seed=1).model, config, temperature=1.0)
    loss = partial(grpo_loss, config=AlgorithmConfig(entropy_bonus=0.01))
    for update in range(3):
        parts = sequences(update, count=5)
        engine.update(pack(parts, max_tokens=1), loss, learning_rate=1e-2)
    if engine.rank == 0:
        save_file({name: tensor.clone().contiguous() for name, tensor in engine.weights().items()}, Path(out))
    stop_distributed()


if __name__ == "__main__":
    main(*sys.argv[1:])
