"""Policies with a model, as `envhub eval` opens them."""

from contextlib import AsyncExitStack
from pathlib import Path

from envhub.policy.config import SamplerConfig
from envhub.policy.core import Policy
from envhub.policy.local_engine import LocalEngine
from envhub.policy.models import load
from envhub.runs.parts import token_policy, turn_format
from envhub.runs.stage import PlayerOptions


async def open_model(folder: Path, player: PlayerOptions, running: AsyncExitStack) -> Policy:
    """A Hugging Face causal LM on the local engine, which ends with `running`. Raises ConfigError."""
    language = load(folder)
    context = min(language.model.config.get_text_config().max_position_embeddings, 4096)
    config = SamplerConfig(temperature=player.temperature, max_tokens=player.max_tokens, max_context_tokens=context)
    layout = turn_format(language, config)
    engine = LocalEngine(language.model, max_rows=config.max_rows, max_context_tokens=context)
    await running.enter_async_context(engine.running())
    return token_policy(engine, layout, language, config)
