"""The DeepSpeed engine: the one file that imports deepspeed.

An update is a weighted sum over the whole batch: losses of all packs and ranks are added, never averaged, so that neither
the split into packs nor the number of ranks can change the gradient.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

from envhub.errors import CheckpointError
from envhub.trainer.config import TrainerConfig
from envhub.trainer.packing import Pack
from envhub.trainer.recipe import LossParts
from envhub.trainer.scorer import TokenScorer

LossFunction = Callable[[Tensor, Tensor, Pack], LossParts]


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What one update saw. `skipped`: loss or gradient was not finite, and the weights are as before."""

    loss: float
    entropy: float
    kl: float
    clip_fraction: float
    gap: float
    gap_max: float
    grad_norm: float
    skipped: bool


def start_distributed() -> None:
    """Join the process group: torchrun's if its variables are set, else a group of one that needs no port."""
    if dist.is_initialized():
        return
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    else:
        os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed asks for it
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


def stop_distributed() -> None:
    """Leave the process group; with several ranks each must, before it ends."""
    dist.destroy_process_group()


def _deepspeed() -> Any:
    """DeepSpeed, told where it runs before it looks for itself.

    Its communication op is built once per virtual environment, by a ninja that lives there too, activated or not.
    """
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path(sys.prefix) / "torch_extensions"))
    if shutil.which("ninja") is None:
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    import deepspeed

    deepspeed.utils.logging.logger.setLevel("WARNING")
    return deepspeed


class TrainEngine:
    """A model, its optimiser and their state over all ranks."""

    def __init__(
        self,
        model: PreTrainedModel,
        config: TrainerConfig,
        *,
        temperature: float,
        ban_ids: tuple[int, ...] = (),
    ) -> None:
        """Wrap `model` for training; it is trained in place.

        Args:
            model: a causal language model.
            config: optimiser and limits; the learning rate is given anew at each update.
            temperature: the sampler's, at which tokens are scored.
            ban_ids: ids that the sampler never draws.
        """
        deepspeed = _deepspeed()
        start_distributed()
        with contextlib.redirect_stdout(sys.stderr):  # DeepSpeed prints; stdout belongs to results
            deepspeed.init_distributed(verbose=False)
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        self._stage = config.zero_stage
        self._max_norm = config.max_grad_norm
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay
        )
        self._model = model.train()
        self._engine, _, _, _ = deepspeed.initialize(
            model=TokenScorer(model, temperature=temperature, ban_ids=ban_ids),
            optimizer=optimizer,
            config=_deepspeed_config(config, model.dtype),
        )

    @property
    def rank(self) -> int:
        """This process's rank."""
        return dist.get_rank()

    def update(self, packs: Sequence[Pack], loss_function: LossFunction, *, learning_rate: float) -> UpdateStats:
        """One optimiser step on the sum of all packs' losses; every rank is given all packs and takes its share.

        A loss or gradient that is not finite leaves weights and optimiser untouched on every rank.
        """
        world = dist.get_world_size()
        rounds = -(-len(packs) // world)
        total = torch.zeros(len(fields(LossParts)), dtype=torch.float64)
        for number in range(rounds):
            place = number * world + self.rank
            pack, share = (packs[place], 1.0) if place < len(packs) else (packs[0], 0.0)  # ranks step together
            logprobs, entropy = self._engine(pack)
            parts = loss_function(logprobs, entropy, pack)
            self._engine.set_gradient_accumulation_boundary(number == rounds - 1)
            self._engine.backward(parts.loss * (share * world), scale_wrt_gas=False)
            seen = torch.stack([getattr(parts, f.name).detach().double() for f in fields(parts)]) * share
            total[:-1] += seen[:-1]
            total[-1] = torch.maximum(total[-1], seen[-1])
        if world > 1:
            largest = total[-1].clone()
            dist.all_reduce(total)
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
            total[-1] = largest
        return self._apply(total, learning_rate)

    def _apply(self, total: Tensor, learning_rate: float) -> UpdateStats:
        norm = self._local_norm()
        finite = bool(torch.isfinite(total[0])) and (norm is None or bool(torch.isfinite(norm)))
        if finite:
            for group in self._engine.optimizer.param_groups:
                group["lr"] = learning_rate
            self._engine.step()
            if norm is None:
                norm = self._engine.get_global_grad_norm()
        else:
            self._engine.optimizer.zero_grad()
            self._engine.zero_grad()
        seen = dict(zip((f.name for f in fields(LossParts)), total.tolist(), strict=True))
        return UpdateStats(**seen, grad_norm=float("nan") if norm is None else float(norm), skipped=not finite)

    def _local_norm(self) -> Tensor | None:
        """The gradient's global norm before clipping; known here only where every rank holds the whole gradient."""
        if self._stage:
            return None
        return torch.nn.utils.get_total_norm([p.grad for p in self._model.parameters() if p.grad is not None])

    @torch.no_grad()
    def score(self, packs: Sequence[Pack]) -> tuple[Tensor, ...]:
        """Log-probabilities of each pack's scored tokens under the current weights, float [n] each."""
        return tuple(self._engine.module(pack)[0] for pack in packs)

    def weights(self) -> Mapping[str, Tensor]:
        """The model's current weights by name; views, to be copied by whoever keeps them."""
        return {name: tensor.detach() for name, tensor in self._model.state_dict().items()}

    def save(self, folder: Path) -> None:
        """Write weights and optimiser state as DeepSpeed does; every rank calls it."""
        self._engine.save_checkpoint(str(folder), tag="engine", save_latest=False)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            CheckpointError: the folder holds no state of this model, ZeRO stage and world size.
        """
        loaded, _ = self._engine.load_checkpoint(str(folder), tag="engine")
        if loaded is None:
            raise CheckpointError(f"no engine state in {folder}", mend="resume from another checkpoint")


def _deepspeed_config(config: TrainerConfig, dtype: torch.dtype) -> dict[str, object]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": config.max_grad_norm,
        "zero_optimization": {"stage": config.zero_stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": dtype is torch.bfloat16},
        "steps_per_print": 10**9,
    }
