"""When failing is no longer worth going on: the one place that stops a run."""

from collections import deque

from envhub.rollout.leases import Outcome, Stop

WINDOW = 100  # finished episodes over which the failed share is taken
MIN_WINDOW = 20
MIN_BARREN = 20  # groups dropped in a row, with none completed between them, that stop a run at the earliest


class FailureBudget:
    """Counts what fails. Each event returns a Stop, with its reason, once the budget is spent, and nothing before."""

    def __init__(self, max_failed_share: float, groups_per_update: int) -> None:
        """Allow this share of failed episodes, and two updates' worth of dropped groups in a row."""
        self._max_share = max_failed_share
        self._max_barren = max(MIN_BARREN, 2 * groups_per_update)
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._barren = 0
        self.failed_episodes = 0

    def episode(self, outcome: Outcome) -> list[Stop]:
        """An episode has ended."""
        failed = outcome.reward is None
        self._recent.append(failed)
        self.failed_episodes += failed
        share = sum(self._recent) / len(self._recent)
        if not failed or len(self._recent) < MIN_WINDOW or share <= self._max_share:
            return []
        return [Stop(f"{share:.0%} of the last {len(self._recent)} episodes failed, the last by: {outcome.cause}")]

    def group(self, *, completed: bool) -> list[Stop]:
        """A group was completed, or dropped because it lost too many episodes."""
        self._barren = 0 if completed else self._barren + 1
        if self._barren < self._max_barren:
            return []
        return [Stop(f"{self._barren} groups in a row lost too many episodes to be trained on")]
