"""What the sampler can be told."""

from typing import Literal

from pydantic import Field

from envhub.settings import Settings


class SamplerConfig(Settings):
    """How replies are sampled."""

    engine: Literal["local"] = "local"
    engines: int = Field(default=1, ge=1)
    """Copies of the model that sample side by side. New weights reach one after another, while the others go on."""
    temperature: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=256, ge=1)
    """Most tokens of one reply."""
    max_context_tokens: int = Field(default=2048, ge=2)
    """Most tokens of one episode, observations and replies together."""
    max_rows: int = Field(default=64, ge=1)
    """Episodes whose keys and values are kept at once; each takes max_context_tokens of memory."""
    format: Literal["auto", "chat", "plain"] = "auto"
    """auto is chat where the tokenizer has a template, else plain."""
    stop_words: tuple[str, ...] = ()
    """Plain format only: vocabulary tokens that end a reply."""
    show_instructions: bool = True
    """Whether the environment's instructions stand before the first observation."""
