"""The space of all text."""

from typing import Any

import gymnasium


class UnicodeText(gymnasium.Space[str]):
    """Any string, of any length and any characters."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(shape=None, dtype=str, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short printable text."""
        length = int(self.np_random.integers(1, 16))
        return "".join(map(chr, self.np_random.integers(32, 127, size=length)))

    def contains(self, x: Any) -> bool:
        """Whether `x` is text."""
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText)

    def __repr__(self) -> str:
        return "UnicodeText()"

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed size."""
        return False
