"""Groups whose rewards are all equal teach nothing: which of them are replaced, and how many replacements will be needed."""

from collections import deque
from math import ceil

from envhub.rollout.config import RolloutConfig

RECENT_GROUPS = 100  # over which the share of constant ones is taken
MOST_CONSTANT = 0.8  # a larger share is not made up for


class Resampling:
    """The constant ones among the groups that are ready."""

    def __init__(self, config: RolloutConfig) -> None:
        """At most `max_resampled_groups` of an update are replaced."""
        self._most, self._count, self._ahead = config.max_resampled_groups, config.groups_per_update, config.over_issue
        self._constant: set[int] = set()
        self._recent: deque[bool] = deque(maxlen=RECENT_GROUPS)
        self._resampled = 0

    def next_update(self) -> None:
        """Another update's groups may be replaced."""
        self._resampled = 0

    def ready(self, index: int, *, constant: bool) -> None:
        """A group is whole."""
        self._recent.append(constant)
        if constant:
            self._constant.add(index)

    def gone(self, index: int) -> bool:
        """A group is no longer ready; whether it was constant."""
        constant = index in self._constant
        self._constant.discard(index)
        return constant

    @property
    def owed(self) -> int:
        """Ready groups that will be dropped as constant; which ones is known when all before them have ended."""
        return min(self._most - self._resampled, len(self._constant))

    def expected(self) -> int:
        """How many groups of this update will have to be replaced, by the share of the last ones, if that is asked for."""
        if not self._ahead or len(self._recent) < self._count:
            return 0
        share = min(MOST_CONSTANT, sum(self._recent) / len(self._recent))
        return min(ceil(self._count * share / (1 - share)), self._most - self._resampled)

    def choose(self, before: float) -> list[int]:
        """The oldest constant groups before some place, up to the limit, which are dropped. By index: speed decides nothing."""
        chosen = sorted(index for index in self._constant if index < before)[: self._most - self._resampled]
        self._resampled += len(chosen)
        return chosen
