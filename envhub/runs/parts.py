"""Builds the token policy of a model: its engines, its format, their seats, and what may never be sampled."""

import asyncio

from envhub.policy.chat_tokens import ChatFormat, PlainFormat, TurnFormat
from envhub.policy.config import SamplerConfig
from envhub.policy.core import Sampling, TokenEngine
from envhub.policy.fleet import Fleet
from envhub.policy.local_engine import LocalEngine
from envhub.policy.models import LanguageModel
from envhub.policy.throttle import LOOK_S
from envhub.policy.token_policy import TokenPolicy
from envhub.rollout.driver import RolloutDriver


def local_fleet(language: LanguageModel, config: SamplerConfig, *, adapts: bool) -> Fleet[LocalEngine]:
    """As many local engines as the config says, each with a copy of the model."""
    engines = [
        LocalEngine(language.copy(), max_rows=config.max_rows, max_context_tokens=config.max_context_tokens)
        for _ in range(config.engines)
    ]
    return Fleet(engines, adapts=adapts)


async def adapt_forever(fleet: Fleet[LocalEngine], driver: RolloutDriver) -> None:
    """Let as many episodes be in flight as the engines can serve well."""
    while True:
        await asyncio.sleep(LOOK_S)
        driver.resize(fleet.adapt())


def turn_format(language: LanguageModel, config: SamplerConfig) -> TurnFormat:
    """The format that `sampler.format` asks for.

    Raises:
        ConfigError: chat is asked for and the tokenizer has no template.
    """
    chat = config.format == "chat" or (config.format == "auto" and language.tokenizer.chat_template is not None)
    if chat:
        return ChatFormat(language.tokenizer)
    return PlainFormat(language.tokenizer, stop_words=config.stop_words)


def token_policy(engine: TokenEngine, layout: TurnFormat, language: LanguageModel, config: SamplerConfig) -> TokenPolicy:
    """Seats on `engine` that sample as the config says; padding can never be sampled."""
    sampling = Sampling(config.temperature, config.max_tokens, layout.stop_ids, banned(language, layout))
    return TokenPolicy(engine, layout, sampling, config.max_context_tokens, config.show_instructions)


def banned(language: LanguageModel, layout: TurnFormat) -> tuple[int, ...]:
    """Ids that are never sampled: padding, unless it also ends replies."""
    pad = language.tokenizer.pad_token_id
    return () if pad is None or pad in layout.stop_ids else (pad,)
