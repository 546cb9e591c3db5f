from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from envhub.errors import ConfigError
from envhub.settings import Settings, load_settings, redacted, to_yaml


class Inner(Settings):
    rate: float = Field(default=0.5, gt=0)
    size: int = Field(default=8, ge=2)
    api_key: str = ""


class Outer(Settings):
    name: str
    inner: Inner = Inner()


def load(tmp_path: Path, text: str, *overrides: str) -> Outer:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(Outer, path, overrides)


def test_numbers_are_numbers_and_overrides_win(tmp_path: Path) -> None:
    found = load(tmp_path, "name: a\ninner:\n  rate: 1e-6\n", "inner.size=4", "name=b")
    assert (found.name, found.inner.rate, found.inner.size) == ("b", 1e-6, 4)


@pytest.mark.parametrize(
    ("text", "overrides", "wanted"),
    [
        ("name: a\ninner:\n  siez: 3\n", [], ["c.yaml:3", "inner.siez", "did you mean 'size'"]),
        ("name: a\ninner: {size: 1}\n", [], ["c.yaml:2", "inner.size", "greater than or equal to 2", "got 1"]),
        ("name: a\ninner: {rate: -1}\n", [], ["inner.rate", "greater than 0"]),
        ("inner: {}\n", [], ["name", "required"]),
        ("name: a\nname: b\n", [], ["c.yaml:2", "stands twice"]),
        ("name: a\n", ["inner.size"], ["section.key=value"]),
        ("name: a\n", ["inner.size=x"], ["override 'inner.size=x'"]),
        ("name: a\n", ["inner.rate=.nan"], ["inner.rate"]),
        ("- a\n", [], ["no sections"]),
        ("name: [\n", [], ["no YAML"]),
        ("a: &x 1\nname: *x\n", [], ["aliases"]),
        ("name: !!python/object/apply:os.system [ls]\n", [], ["not allowed"]),
        ("name: !!python/name:os.system x\n", [], ["no YAML"]),
        ("name: " + "{a: " * 30 + "1" + "}" * 30, [], ["nested deeper"]),
    ],
)
def test_a_wrong_config_says_where_and_what(tmp_path: Path, text: str, overrides: list[str], wanted: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, *overrides)
    for part in wanted:
        assert part in str(caught.value)


def test_every_problem_is_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "nmae: a\ninner: {size: 0, rat: 1}\n")
    assert all(part in str(caught.value) for part in ("nmae", "inner.size", "inner.rat", "required"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_settings(Outer, tmp_path / "nowhere.yaml")


@given(st.binary(max_size=100))
def test_hostile_files_are_refused_and_nothing_else_happens(data: bytes) -> None:
    path = Path("/dev/shm") / "envhub-test-settings.yaml"
    path.write_bytes(data)
    try:
        load_settings(Outer, path)
    except ConfigError:
        pass
    finally:
        path.unlink()


def test_settings_survive_a_round_trip_and_secrets_do_not(tmp_path: Path) -> None:
    found = load(tmp_path, "name: a\ninner: {api_key: hidden, rate: 0.25}\n")
    assert load(tmp_path, to_yaml(found)) == found
    assert "hidden" not in to_yaml(redacted(found))
