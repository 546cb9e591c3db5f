"""What a server is told by its command line and its file."""

from pathlib import Path

import pytest

from envhub.errors import ConfigError
from envhub.runs.serve import serve_config

FLEETS = "{fleets: [{id: a/A-v1, workers: 2, max_sessions: 5}, {id: b/B-v1}], port: 9}"


def test_the_command_line_counts_more_than_the_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEETS)
    given = {"workers": 8, "max_workers": None, "max_sessions": None, "options": None}
    config = serve_config([], tmp_path / "fleet.yaml", ["grace_s=3"], {"port": None, "ray": "auto"}, given)
    assert [(f.id, f.workers, f.max_sessions) for f in config.fleets] == [("a/A-v1", 8, 5), ("b/B-v1", 8, 4096)]
    assert (config.port, config.ray, config.grace_s) == (9, "auto", 3)


def test_bounds_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        serve_config(["a/A-v1"], None, [], {}, {"workers": 3, "max_workers": 2})
    assert refused.value.what == "the config is wrong:\n  the command line: fleets.0: max_workers 2 is below workers 3"
    with pytest.raises(ConfigError, match=r"the command line: the config: host 0\.0\.0\.0 can be reached from outside"):
        serve_config(["a/A-v1"], None, [], {"host": "0.0.0.0"}, {})
