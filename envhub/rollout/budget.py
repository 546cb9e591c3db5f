"""When failing is no longer worth going on: the one place that stops a run."""

from collections import Counter, deque

from envhub.rollout.leases import Outcome, Stop

WINDOW = 100  # finished episodes over which the failed share is taken
MIN_WINDOW = 20
MIN_BARREN = 20  # groups dropped in a row, with none completed between them, that stop a run at the earliest
MAX_CAUSES = 50


class FailureBudget:
    """Counts what fails. Each event returns a Stop, with its reason, once the budget is spent, and nothing before."""

    def __init__(self, max_failed_share: float, groups_per_update: int) -> None:
        """Allow this share of failed episodes, and two updates' worth of dropped groups in a row."""
        self._max_share = max_failed_share
        self._max_barren = max(MIN_BARREN, 2 * groups_per_update)
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._failed_recently = 0
        self._barren = 0
        self.failed_episodes = 0
        self.causes: Counter[str] = Counter()

    def episode(self, outcome: Outcome) -> list[Stop]:
        """An episode has ended."""
        failed = outcome.reward is None
        if len(self._recent) == WINDOW:
            self._failed_recently -= self._recent[0]
        self._recent.append(failed)
        self._failed_recently += failed
        if not failed:
            return []
        self.failed_episodes += 1
        cause = (outcome.cause or "unknown").splitlines()[0][:120]
        self.causes[cause if cause in self.causes or len(self.causes) < MAX_CAUSES else "other"] += 1
        share = self._failed_recently / len(self._recent)
        if len(self._recent) < MIN_WINDOW or share <= self._max_share:
            return []
        table = "".join(f"\n  {count} x {cause}" for cause, count in self.causes.most_common(5))
        last = f"{share:.0%} of the last {len(self._recent)} episodes failed, the last by: {outcome.cause}"
        return [Stop(f"{last}\nfailures by cause, of {self.failed_episodes}:{table}")]

    def group(self, *, completed: bool) -> list[Stop]:
        """A group was completed, or dropped because it lost too many episodes."""
        self._barren = 0 if completed else self._barren + 1
        if self._barren < self._max_barren:
            return []
        return [Stop(f"{self._barren} groups in a row lost too many episodes to be trained on")]
