"""Whether what is trained on looks like what was issued: the question that every dropping, hurrying or waiting scheduler owes
an answer to.

Only places of the task stream are judged before which everything is resolved. Which those are does not depend on how long
anything took, so what is still being played, which is mostly long, is missing on both sides.
"""

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
WINDOW = 4096  # groups that are remembered
TRAINED = "trained"


@dataclass(frozen=True, slots=True)
class Facts:
    """An episode as it is compared: None where it was taken away before that was known. `seconds` is then its age."""

    turns: float | None
    tokens: float | None
    seconds: float
    success: float | None


@dataclass(frozen=True, slots=True)
class Compared:
    """One measure of all issued episodes, and of those that were trained on.

    `distance` is the largest difference of their distribution functions (Kolmogorov and Smirnov), `p` the chance of one as
    large between what was trained on and the rest if both were alike. It allows for episodes of one task being alike.
    """

    issued_mean: float
    trained_mean: float
    distance: float
    p: float


@dataclass(frozen=True, slots=True)
class BiasReport:
    """The comparison by measure, over so many episodes, and what became of those that were not trained on, by reason."""

    episodes: int
    measures: Mapping[str, Compared]
    left_out: Mapping[str, int]

    def metrics(self) -> dict[str, float]:
        """As a row of metrics names it."""
        found = {f"bias/{name}_distance": each.distance for name, each in self.measures.items()}
        return found | {f"bias/{name}_p": each.p for name, each in self.measures.items()}

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Measure, mean of all, mean of what was trained on, distance and p: a table for people."""
        shown = ((name, each.issued_mean, each.trained_mean, each.distance, each.p) for name, each in self.measures.items())
        return [(name, f"{a:.4g}", f"{b:.4g}", f"{c:.3f}", f"{p:.2g}") for name, a, b, c, p in shown]


class Ledger:
    """Remembers what became of every episode that was issued, group by group; the newest `window` groups."""

    def __init__(self, window: int = WINDOW) -> None:
        """Nothing has been issued."""
        self._open: dict[int, dict[int, Facts]] = {}
        self._over: deque[tuple[int, dict[int, Facts], frozenset[int], str]] = deque(maxlen=window)

    def ended(self, index: int, member: int, facts: Facts) -> None:
        """A member of the group at `index` ended, or was taken away. What is said of it last counts."""
        self._open.setdefault(index, {})[member] = facts

    def put_off(self, index: int) -> None:
        """The group will be played anew."""
        self._open.pop(index, None)

    def resolved(self, index: int, trained: Collection[int], reason: str = TRAINED) -> None:
        """The group is over: its members `trained` were trained on; `reason` tells why the others, if all, were not."""
        members = self._open.pop(index, {})
        if members:
            self._over.append((index, members, frozenset(trained), reason))

    def report(self, first_outstanding: float) -> BiasReport:
        """Compare what was issued before the first place that is not resolved yet with what was trained on of it."""
        facts: list[Facts] = []
        kept: list[bool] = []
        tasks: list[int] = []
        left_out: dict[str, int] = {}
        for index, members, trained, reason in self._over:
            if index >= first_outstanding:
                continue
            why = "failed, or slower than its group" if reason == TRAINED else reason
            for member, each in members.items():
                facts.append(each)
                kept.append(member in trained)
                tasks.append(index)
            if lost := len(members.keys() - trained):
                left_out[why] = left_out.get(why, 0) + lost
        return BiasReport(len(facts), _measures(facts, kept, tasks), left_out)


def _measures(facts: Sequence[Facts], kept: Sequence[bool], tasks: Sequence[int]) -> dict[str, Compared]:
    found = {}
    for name in (field.name for field in fields(Facts)):
        values = np.array([math.nan if (v := getattr(each, name)) is None else v for each in facts], dtype=np.float64)
        known = np.isfinite(values)
        chosen = np.array(kept, dtype=np.bool_)[known]
        if chosen.any():
            found[name] = compare(values[known], chosen, np.array(tasks)[known])
    return found


def compare(values: Floats, trained: NDArray[np.bool_], tasks: NDArray[np.int_]) -> Compared:
    """Compare all values with those that were trained on.

    Args:
        values: float64 [n], finite.
        trained: which of them were trained on, bool [n], one at least.
        tasks: which of them belong to one task, int [n]; they count as less than independent, by how alike they are (Kish's
            design effect).
    """
    inside, rest = np.sort(values[trained]), np.sort(values[~trained])
    issued_mean, trained_mean = float(values.mean()), float(inside.mean())
    if not len(rest):
        return Compared(issued_mean, trained_mean, 0.0, 1.0)
    places = np.unique(values)
    gap = np.abs(_below(inside, places) - _below(rest, places)).max()
    independent = len(inside) * len(rest) / len(values) / design_effect(values, tasks)
    return Compared(issued_mean, trained_mean, float(gap) * len(rest) / len(values), kolmogorov(math.sqrt(independent) * gap))


def _below(ordered: Floats, places: Floats) -> Floats:
    return np.searchsorted(ordered, places, side="right") / len(ordered)


def design_effect(values: Floats, tasks: NDArray[np.int_]) -> float:
    """How many values weigh as much as one independent one: 1 + (m - 1) rho, for m values a task of which a share rho of the
    variance of their ranks lies between tasks (L. Kish, Survey Sampling, 1965, section 5.4; rho by analysis of variance).
    """
    _, task, sizes = np.unique(tasks, return_inverse=True, return_counts=True)
    count, groups = len(values), len(sizes)
    if groups < 2 or groups == count:
        return 1.0
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    means = np.bincount(task, ranks) / sizes
    between = float((sizes * (means - ranks.mean()) ** 2).sum()) / (groups - 1)
    within = float(((ranks - means[task]) ** 2).sum()) / (count - groups)
    size = (count - float((sizes**2).sum()) / count) / (groups - 1)
    spread = between + (size - 1) * within
    rho = max(0.0, (between - within) / spread) if spread else 0.0
    return 1 + (float((sizes**2).sum()) / count - 1) * rho


def kolmogorov(x: float) -> float:
    """The chance that Kolmogorov's statistic is larger than `x` where both samples are large and alike."""
    if x < 0.2:
        return 1.0
    tail = math.fsum((-1.0) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * tail))
