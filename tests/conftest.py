"""Fixtures that several rooms' tests share."""

from pathlib import Path

import pytest

SMALL_RUN = """
run: {name: small, updates: 5}
env: {id: game/FrozenLake-v1, options: {size: 3, style: cells, legal: safe}, max_turns: 8}
model: {init: {hidden_size: 16, layers: 1, heads: 2, intermediate_size: 32, vocabulary_episodes: 300}}
sampler: {max_tokens: 1, max_context_tokens: 160, max_rows: 32, format: plain, show_instructions: false}
rollout: {group_size: 8, groups_per_update: 8}
algorithm: {entropy_bonus: 0.01}
trainer: {learning_rate: 3e-3, threads: 1, warmup: {steps: 60, episodes_per_step: 8, learning_rate: 1e-2}}
checkpoint: {every: 2}
"""


LAKE = "{id: game/FrozenLake-v1, options: {size: 3, style: cells, legal: safe}, max_turns: 8}"
LAKES = """
  id: mix/Lakes-v1
  mixture:
    small: {id: game/FrozenLake-v1, options: {size: 2, style: cells, legal: safe}}
    large: {id: game/FrozenLake-v1, options: {size: 3, style: cells, legal: safe}}
  curriculum: {window: 12, up: 0.4, down: 0.1, review: 0.3}
  max_turns: 8"""


def write_small_config(folder: Path, *, curriculum: bool = False) -> Path:
    """A config whose run takes seconds; its run folder lies under `folder`."""
    path = folder / "small.yaml"
    run = SMALL_RUN.replace(LAKE, LAKES) if curriculum else SMALL_RUN
    path.write_text(run.replace("updates: 5", f"updates: 5, dir: {folder / 'runs'}"), encoding="utf-8")
    return path


@pytest.fixture
def small_config(tmp_path: Path) -> Path:
    """The small config in the test's own folder."""
    return write_small_config(tmp_path)
