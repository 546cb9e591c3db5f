"""How many workers a fleet should have: enough for the sessions that are held and waited for, between its bounds."""

import math
from dataclasses import dataclass

HEADROOM = 0.1  # of what is held; at least one place, so that the next caller finds one warm


@dataclass(slots=True)
class Scaler:
    """More at once, fewer only after a calm while.

    Attributes:
        low, high: bounds of the number of workers.
        places: sessions that one worker holds.
        calm_s: how long fewer must have been enough.
    """

    low: int
    high: int
    places: int
    calm_s: float
    now: int = 0
    _calm_since: float | None = None
    _needed: int = 0

    def wanted(self, time: float, load: int) -> int:
        """The number of workers for `load` sessions, held and waiting, at a time in seconds."""
        enough = math.ceil((load + max(1, math.ceil(load * HEADROOM))) / self.places)
        needed = min(self.high, max(self.low, enough))
        if needed >= self.now:
            self.now, self._calm_since = needed, None
        elif self._calm_since is None:
            self._calm_since, self._needed = time, needed
        else:
            self._needed = max(self._needed, needed)
            if time - self._calm_since >= self.calm_s:
                self.now, self._calm_since = self._needed, None
        return self.now
