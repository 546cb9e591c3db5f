"""Values that YAML's own constructors choke on end in a sentence that names their place, in files and overrides alike."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from envhub.errors import ConfigError
from envhub.settings import MAX_DEPTH, Settings, load_settings, parse_value, redacted, to_yaml


class Section(Settings):
    size: int = 8
    api_key: str = ""
    max_tokens: int = 3
    options: dict[str, Any] = Field(default_factory=dict)


class Config(Settings):
    name: str
    section: Section = Section()


def load(tmp_path: Path, text: str, *overrides: str) -> Config:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(Config, path, overrides)


@pytest.mark.parametrize("value", ["0x_", "0b_", "9" * 5000, "!!int x", "!!float ''", "!!bool x", "!!timestamp x"])
def test_a_value_that_cannot_be_read_names_its_line_or_override(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml:2: .* cannot be read as"):
        load(tmp_path, f"section: {{}}\nname: {value}\n")
    with pytest.raises(ConfigError, match=r"override .name=.* cannot be read as"):
        load(tmp_path, "name: a\n", f"name={value}")


def test_nesting_without_end_is_refused_before_it_fills_the_stack(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml:2 is no YAML: nested deeper"):
        load(tmp_path, "name: a\nsection: " + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"override .* nested deeper"):
        load(tmp_path, "name: a\n", "section=" + "{a: " * 100_000)
    assert parse_value("[" * MAX_DEPTH + "]" * MAX_DEPTH, source="here") is not None


def test_a_syntax_error_names_its_own_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml:3 is no YAML"):
        load(tmp_path, "name: a\nsection:\n  size: 1: 2\n")


def test_overrides_are_as_strict_as_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'size' stands twice"):
        load(tmp_path, "name: a\n", "section={size: 1, size: 2}")
    with pytest.raises(ConfigError, match="aliases"):
        load(tmp_path, "name: a\n", "section.options={a: &x 1, b: *x}")


def test_an_override_fills_an_empty_section_and_replaces_where_errors_point(tmp_path: Path) -> None:
    assert load(tmp_path, "name: a\nsection:\n", "section.size=4").section.size == 4
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "name: a\nsection:\n  size: 1\n", "section={size: x}")
    assert "override 'section={size: x}': section.size" in str(caught.value)
    assert "c.yaml:3" not in str(caught.value)


def test_a_wrong_kind_of_value_is_told_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "name: 5\nsection:\n")
    assert "c.yaml:1: name: text belongs here: quote it, got 5" in str(caught.value)
    assert "c.yaml:2: section: a section of keys belongs here, got None" in str(caught.value)


def test_a_date_is_text(tmp_path: Path) -> None:
    assert load(tmp_path, "name: 2024-13-45\n", "section.options.day=2024-01-01").section.options == {"day": "2024-01-01"}


def test_secrets_in_free_options_are_hidden_and_nothing_else_is(tmp_path: Path) -> None:
    options = "{api_key: s3cret, list: [{PASSWORD: s3cret}], hf_token: [s3cret], tokens_shown: 4, model: tiny}"
    found = redacted(load(tmp_path, f"name: a\nsection: {{api_key: s3cret, max_tokens: 7, options: {options}}}\n"))
    assert "s3cret" not in to_yaml(found)
    assert (found.name, found.section.max_tokens) == ("a", 7)
    assert (found.section.options["tokens_shown"], found.section.options["model"]) == (4, "tiny")


@given(st.text(alphabet="0123456789xbo_.:+-eE'\"!&*[]{}, \nnif~=<", max_size=40))
def test_any_value_is_read_or_refused(text: str) -> None:
    with suppress(ConfigError):  # and nothing else
        parse_value(text, source="here")
