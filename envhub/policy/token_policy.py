"""A policy over a token engine: it remembers an episode's tokens exactly as seen and sampled."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envhub.policy.chat_tokens import TurnFormat
from envhub.policy.core import Reply, Sampling, TokenEngine
from envhub.types import FinishReason, Segment


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """Seats that share one engine, one format and one way of sampling."""

    engine: TokenEngine
    format: TurnFormat
    sampling: Sampling
    max_context_tokens: int
    show_instructions: bool = True

    def seat(self, *, episode: str, seed: int, instructions: str) -> "TokenSeat":
        """Sit down in an episode."""
        return TokenSeat(self, episode, seed, instructions if self.show_instructions else "")


class TokenSeat:
    """One episode's context. Observations are appended, replies are kept as sampled."""

    def __init__(self, policy: TokenPolicy, episode: str, seed: int, instructions: str) -> None:
        self._policy, self._episode, self._seed, self._instructions = policy, episode, seed, instructions
        self._ids: list[int] = []
        self._sampled: list[tuple[int, int]] = []
        self._logprobs: list[NDArray[np.generic]] = []
        self._versions: list[NDArray[np.generic]] = []
        self._stopped = False

    async def act(self, observation: str) -> Reply:
        """Append the observation and sample a reply; a full context gives an empty reply with finish CONTEXT."""
        policy, start = self._policy, len(self._ids)
        if start == 0:
            self._ids += policy.format.opening(self._instructions, observation)
        else:
            self._ids += policy.format.between(observation, stopped=self._stopped)
        shown = len(self._ids)
        if shown + policy.sampling.max_tokens > policy.max_context_tokens:
            del self._ids[start:]
            return Reply("", FinishReason.CONTEXT, 0, (start, start), (start, start))
        done = await policy.engine.generate(
            self._ids, policy.sampling, episode=self._episode, seed=turn_seed(self._seed, len(self._sampled))
        )
        reply = done.token_ids.tolist()
        self._ids += reply
        self._sampled.append((shown, len(self._ids)))
        self._logprobs.append(done.logprobs)
        self._versions.append(done.versions)
        self._stopped = done.finish is FinishReason.STOP
        return Reply(policy.format.text(reply), done.finish, 0, (start, shown), (shown, len(self._ids)))

    def segments(self) -> tuple[Segment, ...]:
        """The episode's one segment; empty before the first turn."""
        if not self._ids:
            return ()
        length = len(self._ids)
        mask = np.zeros(length, dtype=np.bool_)
        logprobs = np.zeros(length, dtype=np.float32)
        versions = np.full(length, -1, dtype=np.int32)
        for (start, end), scores, made in zip(self._sampled, self._logprobs, self._versions, strict=True):
            mask[start:end], logprobs[start:end], versions[start:end] = True, scores, made
        return (Segment(np.array(self._ids, dtype=np.int32), mask, logprobs, versions),)

    def close(self) -> None:
        """Give the engine's row back."""
        self._policy.engine.release(self._episode)


def turn_seed(seed: int, turn: int) -> int:
    """The sampler's seed for one turn of an episode: 64 bits of a hash of both."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{turn}".encode(), digest_size=8).digest(), "little")
