"""The server's page in a real headless Chromium: the fleets, and an environment stepped by hand."""

import shutil
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.served import serve

pytestmark = pytest.mark.slow
LAKE = "game/FrozenLake-v1"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(LAKE, "duel/TicTacToe-v1", "--max-sessions", "1") as served:
        yield served.url


@pytest.fixture
def page() -> Iterator[Page]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert path is not None, "install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=False, args=["--disable-gpu"])
        opened = browser.new_page()
        yield opened
        opened.goto("about:blank")  # a browser that is killed says nothing, and its lease runs out
        browser.close()


def test_fleets_are_shown_and_an_environment_is_played(url: str, page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{url}/ui")
    expect(page.locator("#state")).to_have_text("ready", timeout=15_000)
    expect(page.locator("#fleets tr")).to_have_count(2)
    page.locator("#env").select_option(LAKE)
    page.locator("#seed").fill("1")
    page.locator("#reset").click()
    expect(page.locator("#observation")).to_have_text("@FFF\nFHHH\nFFFF\nFFFG")
    for word in ("down", "down", "right", "right", "down", "right"):
        page.locator("#action").fill(word)
        page.locator("#action").press("Enter")
    expect(page.locator("#outcome")).to_have_text("reward 1, the episode has ended")
    expect(page.locator("#step")).to_be_disabled()
    expect(page.locator("#fleets")).to_contain_text("1 of 1")
    assert errors == []


def test_a_refusal_is_shown_and_a_page_that_leaves_gives_its_session_back(url: str, page: Page) -> None:
    held = httpx.post(f"{url}/envs/{LAKE}/sessions", json={"wait_s": 10}, timeout=30).json()["session"]
    page.goto(f"{url}/ui")
    expect(page.locator("#state")).to_have_text("ready", timeout=15_000)
    page.locator("#env").select_option(LAKE)
    page.locator("#reset").click()
    expect(page.locator("#outcome")).to_contain_text("All 1 sessions are in use")
    httpx.delete(f"{url}/envs/{LAKE}/sessions/{held}")
    page.locator("#reset").click()
    expect(page.locator("#observation")).to_contain_text("G")
    page.goto("about:blank")
    assert httpx.post(f"{url}/envs/{LAKE}/sessions", json={"wait_s": 10}, timeout=30).status_code == 201


def test_the_page_runs_nothing_from_elsewhere(url: str) -> None:
    answer = httpx.get(f"{url}/ui")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "http" not in answer.text.replace("http-equiv", "")
