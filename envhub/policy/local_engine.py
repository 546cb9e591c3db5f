"""The local engine: continuous batching over a transformers model in this process, on the CPU or one GPU-less laptop.

One step takes the new tokens of every waiting row (a turn's observation, or the one token sampled last), runs them packed,
and samples one token per row. Rows keep their keys and values between the turns of an episode.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from transformers import PreTrainedModel

from envhub.errors import ConfigError, PolicyError
from envhub.policy.core import Completion, Load, Sampling
from envhub.policy.kv_cache import ATTENTION, KeyValueRows, Plan
from envhub.policy.sampling import draw, uniform
from envhub.types import FinishReason


@dataclass(eq=False, slots=True)
class _Call:
    """One `generate` in progress."""

    episode: str
    ids: list[int]
    sampling: Sampling
    seed: int
    done: "asyncio.Future[Completion]"
    prompt_length: int
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Row:
    """A cache row and the tokens whose keys it holds."""

    index: int
    episode: str = ""
    cached: list[int] = field(default_factory=list)


class LocalEngine:
    """A `TokenEngine` over a transformers causal language model. Use it inside `async with engine.running():`."""

    def __init__(self, model: PreTrainedModel, *, max_rows: int, max_context_tokens: int, max_step_tokens: int = 16384) -> None:
        """Take over `model` for sampling.

        Args:
            model: its weights are replaced by `update_weights`; nothing else may train it.
            max_rows: contexts kept at once; more episodes wait, or give up their cached prefix.
            max_context_tokens: longest prompt plus reply.
            max_step_tokens: most packed tokens of one forward pass.

        Raises:
            ConfigError: the model's attention cannot be driven by this engine.
        """
        _refuse_sliding_windows(model, max_context_tokens)
        model.set_attn_implementation(ATTENTION)
        model.eval()  # type: ignore[no-untyped-call]
        self._model = model.requires_grad_(False)
        self._cache = KeyValueRows(
            model.config.get_text_config(), num_rows=max_rows, length=max_context_tokens, dtype=model.dtype
        )
        self._max_step_tokens = max_step_tokens
        self._free = [_Row(index) for index in reversed(range(max_rows))]
        self._rows: dict[str, _Row] = {}  # insertion order is least recently used first
        self._going: list[_Call] = []  # replies that have begun; nobody takes their rows
        self._waiting: deque[_Call] = deque()
        self._wake = asyncio.Event()
        self._busy = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="local-engine")
        self._version = 0
        self._open = False
        self._load = Load()
        self.tokens_sampled = 0

    @property
    def version(self) -> int:
        """Version of the weights that the next token is sampled from."""
        return self._version

    @asynccontextmanager
    async def running(self) -> AsyncIterator["LocalEngine"]:
        """Serve `generate` calls until the block ends; calls still waiting then are cancelled."""
        async with asyncio.TaskGroup() as group:
            loop = group.create_task(self._serve(), name="local-engine")
            self._open = True
            try:
                yield self
            finally:
                self._open = False
                loop.cancel()
                for call in (*self._going, *self._waiting):
                    call.done.cancel()
                self._thread.shutdown(wait=True)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int) -> Completion:
        """Continue `prompt_ids` until a stop token or `sampling.max_tokens`. See `TokenEngine.generate`."""
        if not self._open:
            raise PolicyError("the local engine is not running", mend="call generate inside engine.running()")
        if not prompt_ids or len(prompt_ids) + sampling.max_tokens > self._cache.length:
            raise PolicyError(
                f"a prompt of {len(prompt_ids)} tokens and {sampling.max_tokens} to sample do not fit in 1 to "
                f"{self._cache.length}",
                mend="raise sampler.max_context_tokens, or lower sampler.max_tokens or env.max_turns",
            )
        done: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(episode, list(prompt_ids), sampling, seed, done, len(prompt_ids)))
        self._wake.set()
        return await done

    def load(self) -> Load:
        """How pressed the engine was in its last step."""
        return self._load

    def release(self, episode: str) -> None:
        """Give the episode's row back."""
        row = self._rows.pop(episode, None)
        if row is not None:
            row.episode, row.cached = "", []
            self._free.append(row)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Hold the engine between two steps; replies in progress keep their tokens and go on afterwards."""
        async with self._busy:
            yield

    async def update_weights(self, state: Mapping[str, torch.Tensor], version: int) -> None:
        """Replace the weights in place between two steps, and forget every cached prefix.

        Raises:
            ConfigError: names or shapes do not match the model's.
        """
        async with self._busy:
            own = self._model.state_dict()
            if state.keys() != own.keys() or any(state[name].shape != own[name].shape for name in own):
                raise ConfigError("published weights do not match the sampler's model", mend="use one model for both")
            for name, tensor in own.items():
                tensor.copy_(state[name])
            self._version = version
            for row in self._rows.values():
                row.cached = []

    def weights(self) -> Mapping[str, torch.Tensor]:
        """The weights being sampled from; for checks, not to be written."""
        return dict(self._model.state_dict())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiting and not self._going:
                self._wake.clear()
                await self._wake.wait()
            await asyncio.sleep(0)  # let every episode that can answer do so first: fuller, and reproducible, batches
            async with self._busy:
                batch = self._admit()
                if batch:
                    try:
                        await loop.run_in_executor(self._thread, self._step, batch)
                    except Exception as error:  # of the model: out of memory, a fault of the device
                        _fail(batch, error)
                    self._settle([call for call, _ in batch])
            for _ in range(3):
                await asyncio.sleep(0)

    def _admit(self) -> list[tuple[_Call, _Row]]:
        """The calls of the next step, each with a row: replies that have begun, then the oldest; the others stay in line."""
        batch: list[tuple[_Call, _Row]] = []
        later: deque[_Call] = deque()
        room, prompts = self._max_step_tokens, 0
        taken = {call.episode for call in self._going}
        line, self._going = (*self._going, *self._waiting), []
        for call in line:
            if call.done.done():
                continue
            row = None if room <= 0 else self._row_for(call.episode, taken)
            if row is None:
                later.append(call)
                continue
            keep = min(_shared_prefix(row.cached, call.ids), len(call.ids) - 1)
            del row.cached[keep:]
            room -= len(call.ids) - keep
            prompts += len(call.ids) - keep - bool(call.logprobs)  # a reply's last token is no prompt
            taken.add(call.episode)
            batch.append((call, row))
        self._waiting = later
        self._load = replace(self._load, running=len(batch), waiting=len(later), computed=self._load.computed + prompts)
        return batch

    def _row_for(self, episode: str, taken: set[str]) -> _Row | None:
        row = self._rows.pop(episode, None)
        if row is None and self._free:
            row = self._free.pop()
        if row is None:
            idle = next((name for name in self._rows if name not in taken), None)
            if idle is None:
                return None
            row = self._rows.pop(idle)
            self._load = replace(self._load, evicted=self._load.evicted + len(row.cached))
        if row.episode != episode:
            row.episode, row.cached = episode, []
        self._rows[episode] = row
        return row

    @torch.inference_mode()
    def _step(self, batch: list[tuple[_Call, _Row]]) -> None:
        fresh = [call.ids[len(row.cached) :] for call, row in batch]
        starts = [len(row.cached) for _, row in batch]
        plan = Plan.of(self._cache, [row.index for _, row in batch], starts, [len(ids) for ids in fresh])
        ids = torch.from_numpy(np.concatenate([np.asarray(part, dtype=np.int64) for part in fresh]))
        logits = self._model(
            input_ids=ids[None],
            position_ids=plan.positions[None],
            use_cache=False,
            logits_to_keep=plan.last,
            plan=plan,
        ).logits[0]
        by_sampling: dict[Sampling, list[int]] = {}
        for place, (call, _) in enumerate(batch):
            by_sampling.setdefault(call.sampling, []).append(place)
        for sampling, places in by_sampling.items():
            calls = [batch[place][0] for place in places]
            chance = uniform([c.seed for c in calls], [len(c.logprobs) for c in calls])
            chosen, logprobs = draw(logits[places], sampling, chance)
            for call, token, logprob in zip(calls, chosen.tolist(), logprobs.tolist(), strict=True):
                call.ids.append(token)
                call.logprobs.append(logprob)
                call.versions.append(self._version)
        for (_, row), part in zip(batch, fresh, strict=True):
            row.cached.extend(part)
        self.tokens_sampled += len(batch)

    def _settle(self, calls: Sequence[_Call]) -> None:
        for call in calls:
            sampled = len(call.logprobs)
            stopped = call.ids[-1] in call.sampling.stop_ids
            if call.done.done():
                continue
            if not stopped and sampled < call.sampling.max_tokens:
                self._going.append(call)
                continue
            call.done.set_result(
                Completion(
                    np.array(call.ids[call.prompt_length :], dtype=np.int32),
                    np.array(call.logprobs, dtype=np.float32),
                    np.array(call.versions, dtype=np.int32),
                    FinishReason.STOP if stopped else FinishReason.LENGTH,
                )
            )


def _fail(batch: Sequence[tuple[_Call, _Row]], error: Exception) -> None:
    """The calls of a step that broke get an error; what their rows hold is not known any more."""
    for call, row in batch:
        row.cached = []
        if not call.done.done():
            call.done.set_exception(
                PolicyError(
                    f"a step of the local engine raised {type(error).__name__}: {error}",
                    mend="lower sampler.max_rows or sampler.max_context_tokens if memory is short",
                )
            )


def _shared_prefix(left: list[int], right: list[int]) -> int:
    if left == right[: len(left)]:
        return len(left)
    return next(i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)


def _refuse_sliding_windows(model: PreTrainedModel, length: int) -> None:
    config = model.config.get_text_config()
    kinds = set(config.layer_types or ()) - {"full_attention"} if "layer_types" in config.to_dict() else set()
    if kinds and (config.to_dict().get("sliding_window") or 0) < length:
        raise ConfigError(
            f"the local engine serves full attention only, and this model has {', '.join(sorted(kinds))} layers",
            mend="use sampler.engine=vllm, or keep sampler.max_context_tokens within the model's window",
        )
