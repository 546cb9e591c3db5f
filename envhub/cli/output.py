"""Results on stdout: tables for people, JSON for programs."""

import io
import json
import math
import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from envhub.errors import ConfigError
from envhub.settings import parse_value

PIPE_WIDTH = 10_000


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout; on a pipe plain columns without frames, so that a row is a line."""
    on_terminal = sys.stdout.isatty()
    table = Table(title=title or None, title_justify="left", box=box.HEAVY_HEAD if on_terminal else None, pad_edge=on_terminal)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    if on_terminal:
        Console(markup=False, highlight=False).print(table)
        return
    plain = io.StringIO()
    Console(file=plain, markup=False, highlight=False, width=PIPE_WIDTH).print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in plain.getvalue().splitlines()))


def print_json(value: object) -> None:
    """One JSON document on stdout; what is not finite becomes null."""
    sys.stdout.write(json.dumps(_finite(value), indent=2, default=str) + "\n")


def _finite(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {k: _finite(v) for k, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
    return value


def parse_options(options: Sequence[str]) -> dict[str, object]:
    """`--option key=value` as a dict; values are read as in a config. Raises ConfigError."""
    found: dict[str, object] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not (name and equals):
            raise ConfigError(f"cannot read --option {option[:80]!r}", mend="write --option key=value")
        found[name] = parse_value(text, source=f"--option {option[:80]!r}")
    return found
