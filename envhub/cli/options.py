"""`--option key=value`, as several commands take it."""

from collections.abc import Sequence

from envhub.errors import ConfigError
from envhub.settings import parse_value


def parse_options(options: Sequence[str]) -> dict[str, object]:
    """`--option key=value` as a dict; values are read as in a config. Raises ConfigError."""
    found: dict[str, object] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not (name and equals):
            raise ConfigError(f"cannot read --option {option[:80]!r}", mend="write --option key=value")
        found[name] = parse_value(text, source=f"--option {option[:80]!r}")
    return found
