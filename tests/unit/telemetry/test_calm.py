"""A log that anybody could fill: the first lines of a kind a minute are written, the others are counted."""

import logging

from envhub.telemetry import MOST_ALIKE, Calm


def test_the_first_lines_of_a_kind_pass_and_the_rest_are_counted() -> None:
    now = [0.0]
    calm = Calm(lambda: now[0])

    def passed(message: str) -> logging.LogRecord | None:
        record = logging.LogRecord("x", logging.WARNING, "", 0, message, (), None)
        return record if calm.filter(record) else None

    assert sum(passed("bad") is not None for _ in range(100)) == MOST_ALIKE
    assert passed("other") is not None
    now[0] = 59.9
    assert passed("bad") is None
    now[0] = 60.0
    told = passed("bad")
    assert told is not None
    assert told.getMessage() == f"bad ({101 - MOST_ALIKE} more of these were left out)"
    assert sum(passed("bad") is not None for _ in range(100)) == MOST_ALIKE - 1
