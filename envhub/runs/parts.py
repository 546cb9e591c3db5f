"""Builds the token policy of a model: its format, its engine's seats, and what may never be sampled."""

from envhub.policy.chat_tokens import ChatFormat, PlainFormat, TurnFormat
from envhub.policy.config import SamplerConfig
from envhub.policy.core import Sampling, TokenEngine
from envhub.policy.models import LanguageModel
from envhub.policy.token_policy import TokenPolicy


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
