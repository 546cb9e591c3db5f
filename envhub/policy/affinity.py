"""Which of several engines an episode's next turn goes to: the one that has its cache, unless that one falls behind."""

from collections.abc import Sequence

SLACK = 0.25  # how much longer, by share, an episode's own engine may be than the shortest line
SLACK_TURNS = 4  # and by count, so that short lines do not send episodes to and fro


def pick(loads: Sequence[int], home: int | None) -> int:
    """The engine for the next turn.

    Args:
        loads: turns on every engine, in progress and waiting.
        home: the engine that has the episode's prefix in its cache, if one has.

    Returns:
        `home`, or the least loaded engine if home is more than a quarter and four turns longer; the first of equals.
    """
    least = min(loads)
    if home is not None and loads[home] <= least * (1 + SLACK) + SLACK_TURNS:
        return home
    return loads.index(least)
