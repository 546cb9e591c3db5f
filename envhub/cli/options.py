"""`--option key=value`, as several commands take it."""

from collections.abc import Sequence

from envhub.errors import ConfigError
from envhub.settings import parse_value


def parse_options(options: Sequence[str], name: str = "--option") -> dict[str, object]:
    """`--option key=value` as a dict; values are read as in a config. Raises ConfigError, which names the option `name`."""
    found: dict[str, object] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not (key and equals):
            raise ConfigError(f"cannot read {name} {option[:80]!r}", mend=f"write {name} key=value")
        found[key] = parse_value(text, source=f"{name} {option[:80]!r}")
    return found
