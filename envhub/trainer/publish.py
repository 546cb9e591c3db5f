"""Weights from trainer to sampler, believed only after the sampler has shown that it holds them."""

import hashlib
from collections.abc import Mapping
from typing import Protocol

import torch

from envhub.errors import PublishError


class WeightSink(Protocol):
    """Whatever samples under published weights."""

    @property
    def version(self) -> int: ...

    async def update_weights(self, state: Mapping[str, torch.Tensor], version: int) -> None: ...

    def weights(self) -> Mapping[str, torch.Tensor]: ...


async def publish(state: Mapping[str, torch.Tensor], *sinks: WeightSink, version: int) -> str:
    """Give every sink the weights as `version`, one after another, and check version and checksum of what it then holds.

    Returns:
        The weights' checksum.

    Raises:
        PublishError: a sink holds another version or other weights afterwards.
    """
    wanted = checksum(state)
    for sink in sinks:
        await sink.update_weights(state, version)
        held = checksum(sink.weights())
        if sink.version != version or held != wanted:
            raise PublishError(
                f"the sampler answers version {sink.version} with checksum {held}, not version {version} with {wanted}",
                mend="stop the run and resume it from its last checkpoint",
            )
    return wanted


def checksum(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, shapes, types and bytes, in order of name; 16 hex digits."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
