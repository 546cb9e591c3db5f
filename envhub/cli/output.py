"""Results on stdout: tables for people, JSON for programs."""

import json
import math
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout; on a pipe plain columns without frames, so that a row is a line."""
    if not sys.stdout.isatty():
        sys.stdout.write(f"{title}\n" * bool(title) + plain_table(columns, rows))
        return
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, two spaces apart. A cell's further lines stand below its first."""
    lines = [list(columns)]
    for row in rows:
        cells = [cell.splitlines() or [""] for cell in row]
        lines += [[cell[n] if n < len(cell) else "" for cell in cells] for n in range(max(map(len, cells)))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)


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
