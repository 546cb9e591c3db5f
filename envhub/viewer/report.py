"""A run after it ran: one HTML page with its curves, readable without a network."""

import base64
import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from envhub.types import EvalSummary

mpl.use("Agg")

CURVES = (
    ("success", ("success/mean", "eval/success")),
    ("reward", ("reward/mean",)),
    ("entropy (nats)", ("policy/entropy",)),
    ("KL from the sampler (nats)", ("policy/kl",)),
    ("turns per episode", ("episode/turns_mean",)),
    ("tokens per second", ("throughput/tokens_per_s",)),
    ("staleness (updates)", ("staleness/max",)),
    ("gradient norm", ("policy/grad_norm",)),
)
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.3rem .9rem;border-bottom:1px solid #ddd;text-align:left}"
    ".curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:1rem}img{width:100%}"
    "pre{background:#f6f6f4;padding:1rem;overflow-x:auto}"
)


def write_report(
    run_dir: Path,
    *,
    title: str,
    metrics: Sequence[Mapping[str, Any]],
    before: EvalSummary | None,
    after: EvalSummary | None,
    replay: str,
    facts: Mapping[str, str],
    bias: Sequence[Sequence[str]] = (),
) -> Path:
    """Write report.html and plots/*.png into the run folder; returns the page's path.

    `bias` has rows of measure, mean of the issued, mean of the trained episodes, distance and p.
    """
    plots = run_dir / "plots"
    plots.mkdir(exist_ok=True)
    pictures = []
    for label, names in CURVES:
        path = plots / f"{label.split(' (')[0].replace(' ', '-')}.png"
        if _plot(path, label, names, metrics):
            data = base64.b64encode(path.read_bytes()).decode()
            pictures.append(f'<img alt="{html.escape(label)}" src="data:image/png;base64,{data}">')
    rows = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in facts.items())
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
        f"<h1>{html.escape(title)}</h1><table>{rows}</table>{_comparison(before, after)}{_bias(bias)}"
        f'<h2>Curves</h2><div class="curves">{"".join(pictures)}</div>'
        f"<h2>One episode</h2><pre>{html.escape(replay)}</pre></html>"
    )
    target, scratch = run_dir / "report.html", run_dir / ".report.tmp"
    scratch.write_text(page, encoding="utf-8", errors="replace")
    os.replace(scratch, target)
    return target


def comparison_rows(before: EvalSummary | None, after: EvalSummary | None) -> list[tuple[str, str, str]]:
    """Measure, before, after: the rows of the table that a run ends with."""

    def cell(summary: EvalSummary | None, name: str) -> str:
        if summary is None:
            return "-"
        match name:
            case "success":
                low, high = summary.success_low, summary.success_high
                return f"{summary.success_rate:.3f} [{low:.3f}, {high:.3f}]"
            case "reward":
                return f"{summary.reward_mean:.3f}"
            case "turns":
                return f"{summary.turns_mean:.2f}"
            case _:
                return f"{summary.episodes} ({summary.failed} failed)"

    return [(name, cell(before, name), cell(after, name)) for name in ("success", "reward", "turns", "episodes")]


def _comparison(before: EvalSummary | None, after: EvalSummary | None) -> str:
    cells = "".join(f"<tr><th>{n}</th><td>{b}</td><td>{a}</td></tr>" for n, b, a in comparison_rows(before, after))
    return f"<h2>Held-out tasks</h2><table><tr><th></th><th>before</th><th>after</th></tr>{cells}</table>"


def _bias(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    names = ("", "issued", "trained", "distance", "p")
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    table = "".join(f"<tr>{line}</tr>" for line in ["".join(f"<th>{name}</th>" for name in names), *lines])
    why = "Last episodes issued against those trained on; a small p (below 0.01) means that they differ by more than chance."
    return f"<h2>Bias</h2><p>{why}</p><table>{table}</table>"


def _plot(path: Path, label: str, names: Sequence[str], metrics: Sequence[Mapping[str, Any]]) -> bool:
    figure = Figure(figsize=(5.2, 2.8), dpi=110, layout="constrained")
    axes = figure.subplots()
    drawn = False
    for name in names:
        points = [(row["update"], row[name]) for row in metrics if row.get(name) is not None]
        if points:
            drawn = True
            axes.plot(*zip(*points, strict=True), label=name, marker="o" if len(points) < 40 else None, markersize=3)
    axes.set(xlabel="update", title=label)
    axes.grid(alpha=0.3)
    if len(names) > 1:
        axes.legend()
    if drawn:
        figure.savefig(path)
    return drawn
