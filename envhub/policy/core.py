"""What a policy is: it takes a seat in an episode, reads observations and replies.

A token policy (local, vLLM) remembers the tokens it saw and sampled; a text policy (scripted, random, a person) does not.
`rollout.play` cannot tell them apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from envhub.types import FinishReason, Segment


@dataclass(frozen=True, slots=True)
class Reply:
    """What a seat answered to one observation.

    `segment`, `observation_span` and `reply_span` say where its tokens stand in `Seat.segments()`; -1 and (0, 0) for text
    policies. A `finish` of CONTEXT means that there was no room to answer: `text` is empty and the episode is truncated.
    """

    text: str
    finish: FinishReason = FinishReason.STOP
    segment: int = -1
    observation_span: tuple[int, int] = (0, 0)
    reply_span: tuple[int, int] = (0, 0)


class Seat(Protocol):
    """One policy's place in one episode. Not shared between episodes; not used by two tasks at once."""

    async def act(self, observation: str) -> Reply:
        """Answer an observation. Raises PolicyError if no answer can be had. Cancelling abandons the reply."""
        ...

    def segments(self) -> tuple[Segment, ...]:
        """The tokens of the episode so far; empty for text policies."""
        ...

    def close(self) -> None:
        """Give back what the seat holds (cache rows). Safe to call twice."""
        ...


@runtime_checkable
class InsideSeat(Protocol):
    """A seat that looks at the environment itself: a solver, or a random player who wants legal moves."""

    def meet(self, env: object) -> None:
        """The environment of this episode, after its reset. Not called where the environment lives elsewhere."""
        ...


class Policy(Protocol):
    """Takes seats in episodes."""

    def seat(self, *, episode: str, seed: int, instructions: str) -> Seat:
        """Sit down in an episode. `instructions` is what the environment tells every player before the first turn."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: > 0 samples from softmax(logits / temperature); 0 takes the likeliest token.
        max_tokens: most tokens of one reply.
        stop_ids: token ids that end a reply; the stop token belongs to the reply and is trained on.
        ban_ids: token ids that can never be sampled; their probability is shared by the others, in the logprobs too.
    """

    temperature: float
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    ban_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """Tokens an engine sampled: ids int32 [n], logprobs float32 [n] in nats at the sampling temperature, versions int32 [n]."""

    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    versions: NDArray[np.int32]
    finish: FinishReason


@dataclass(frozen=True, slots=True)
class Load:
    """How pressed an engine is. Counts of tokens only grow; a difference of two looks tells what happened between them.

    Attributes:
        running: turns in progress.
        waiting: turns that wait for a row or for room in the cache.
        computed: prompt tokens computed.
        evicted: tokens of living episodes that were driven out of the cache.
    """

    running: int = 0
    waiting: int = 0
    computed: int = 0
    evicted: int = 0

    def since(self, before: "Load") -> "Load":
        """The same moment, with the tokens since `before`."""
        return Load(self.running, self.waiting, self.computed - before.computed, self.evicted - before.evicted)

    def __add__(self, other: "Load") -> "Load":
        """Two engines together."""
        return Load(
            self.running + other.running,
            self.waiting + other.waiting,
            self.computed + other.computed,
            self.evicted + other.evicted,
        )


class TokenEngine(Protocol):
    """Token ids in, token ids out, under weights with a version."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int) -> Completion:
        """Continue `prompt_ids`. Calls of one `episode` whose prompts extend one another share a prefix cache.

        `seed` fixes the draw of this call, whatever else runs in the same batch. Cancelling frees the row.
        """
        ...

    def release(self, episode: str) -> None:
        """Forget the episode's cached prefix."""
        ...

    @property
    def version(self) -> int:
        """Version of the weights that the next token is sampled from."""
        ...

    def load(self) -> Load:
        """How pressed the engine is now."""
        ...
