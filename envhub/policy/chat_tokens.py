"""Between text and token ids, one turn at a time: what is appended is encoded once, and sampled ids are never made again.

Two formats: `ChatFormat` follows a model's chat template, `PlainFormat` puts observation and reply behind one another.
Observations are untrusted text: special tokens written in them become ordinary characters.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from envhub.errors import ConfigError

_MARK = "\u2063envhub\u2063"  # stands for an observation while the template is rendered


class TurnFormat(Protocol):
    """How an episode is laid out in tokens."""

    stop_ids: tuple[int, ...]

    def opening(self, instructions: str, observation: str) -> list[int]:
        """Tokens before the first reply."""
        ...

    def between(self, observation: str, *, stopped: bool) -> list[int]:
        """Tokens between two replies; `stopped` tells whether the last reply ended with a stop token."""
        ...

    def text(self, reply_ids: list[int]) -> str:
        """The reply as the environment reads it."""
        ...


class PlainFormat:
    """Observation, reply, observation, reply: for models without a chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, stop_words: tuple[str, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self._encode = _encoder(tokenizer)
        self.stop_ids: tuple[int, ...] = tuple(tokenizer.get_vocab().get(word, -1) for word in stop_words)
        if -1 in self.stop_ids:
            raise ConfigError(f"a stop word of {stop_words} is not one token", mend="name tokens of the vocabulary")

    def opening(self, instructions: str, observation: str) -> list[int]:
        start = [] if self._tokenizer.bos_token_id is None else [self._tokenizer.bos_token_id]
        return [*start, *self._encode(instructions), *self._encode(observation)]

    def between(self, observation: str, *, stopped: bool) -> list[int]:
        return list(self._encode(observation))

    def text(self, reply_ids: list[int]) -> str:
        return _decode(self._tokenizer, reply_ids, self.stop_ids)


class ChatFormat:
    """The tokenizer's own chat template; later turns must only append to it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.chat_template is None:
            raise ConfigError("the model has no chat template", mend="set sampler.format=plain, or use a chat model")
        self._tokenizer = tokenizer
        self._encode = _encoder(tokenizer)
        asked = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
        answered = self._render(asked)
        prompt = self._render(asked[:1], generate=True)
        more = self._render([*asked, {"role": "user", "content": _MARK}], generate=True)
        if not (answered.startswith(prompt + "a") and more.startswith(answered)):
            raise ConfigError(
                "the chat template rewrites earlier turns, so tokens cannot be kept as sampled",
                mend="use a template that only appends, or sampler.format=plain",
            )
        tail = self._special(answered[len(prompt) + 1 :])
        before, after = more[len(answered) :].split(_MARK)
        end = tokenizer.eos_token_id if tail[:1] in ([tokenizer.eos_token_id], []) else tail[0]
        self.stop_ids: tuple[int, ...] = (end,) if end is not None else ()
        self._tail, self._before, self._after = tail, self._special(before), self._special(after)

    def opening(self, instructions: str, observation: str) -> list[int]:
        system = [{"role": "system", "content": instructions}] if instructions else []
        shown = self._render([*system, {"role": "user", "content": _MARK}], generate=True)
        before, after = shown.split(_MARK)
        return [*self._special(before), *self._encode(observation), *self._special(after)]

    def between(self, observation: str, *, stopped: bool) -> list[int]:
        tail = self._tail[1:] if stopped and self._tail[:1] == list(self.stop_ids) else self._tail
        return [*tail, *self._before, *self._encode(observation), *self._after]

    def text(self, reply_ids: list[int]) -> str:
        return _decode(self._tokenizer, reply_ids, self.stop_ids)

    def _render(self, messages: list[dict[str, str]], *, generate: bool = False) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate))

    def _special(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def _encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], tuple[int, ...]]:
    @lru_cache(maxsize=65536)
    def encode(text: str) -> tuple[int, ...]:
        clean = text.encode("utf-8", "replace").decode()  # lone surrogates have no bytes
        return tuple(tokenizer.encode(clean, add_special_tokens=False, split_special_tokens=True))

    return encode


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int], stop_ids: tuple[int, ...]) -> str:
    if ids and ids[-1] in stop_ids and ids[-1] in tokenizer.all_special_ids:
        ids = ids[:-1]
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
