"""The invented country holds together; searches answer whatever is asked; questions have one answer."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from envhub.envs import make
from envhub.envs.tools import ToolError
from envhub_tools.country import country
from envhub_tools.library import library
from envhub_tools.riddles import LINKS, ONE, normal, riddle
from envhub_tools.search import Search, tasks

QUERIES = [
    '"',
    "'",
    "*",
    "a AND",
    "NEAR(",
    "title:",
    "-",
    "a" * 1_000_000,
    "\0x",
    "\ud800 x",
    "x'); DROP TABLE articles; --",
    "^x",
    "{x}",
    "x:y",
]


def test_the_same_number_gives_the_same_country() -> None:
    again = country.__wrapped__(0)
    assert again == country(0)
    assert again != country(1)
    assert len(again.facts) == 300


def test_every_question_has_a_relation_and_every_link_leads_to_an_article() -> None:
    known = country(0)
    for kind, relation in [*ONE, *LINKS]:
        for title in (title for title, its in known.kinds.items() if its == kind):
            value = known.facts[title][relation]
            assert value in library(0).articles[title]
            assert (kind, relation) not in LINKS or value in known.facts


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_a_hostile_query_is_answered_in_words(query: str) -> None:
    env = cast(Search, make("tool/Search-v1"))
    env.reset(seed=0)
    observation, _, terminated, _, _ = env.step(env.call("search", query=query))
    assert observation.startswith(("error: ", "nothing is found")) or ": " in observation
    assert not terminated
    assert len(library(0).articles) == len(library(0).search("born city river company is", 10)) * 30


def test_the_best_article_comes_first_and_the_limit_is_kept() -> None:
    title = next(title for title, kind in country(0).kinds.items() if kind == "company")
    assert library(0).search(f"Who established {title}?", 3)[0] == title
    assert len(library(0).search("works", 7)) == 7
    assert library(0).search("zzzz", 7) == []
    with pytest.raises(ToolError, match="no words"):
        library(0).search("?!", 3)


def test_an_unknown_title_is_answered_with_those_that_look_alike() -> None:
    title = next(iter(library(0).articles))
    with pytest.raises(ToolError, match=title):
        library(0).read(title[:-1])


def test_threads_may_search_at_once() -> None:
    titles = list(library(0).articles)[::10]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda title: library(0).search(title, 1), titles * 10)) == [[title] for title in titles * 10]


@pytest.mark.parametrize(("hops", "lengths"), [("one", {1}), ("two", {2}), ("mixed", {1, 2})])
def test_hops_say_how_many_articles_are_needed(hops: Any, lengths: set[int]) -> None:
    found = [riddle(seed, hops=hops, world=0) for seed in range(200)]
    assert {len(task["path"]) for task in found} == lengths
    for task in found:
        assert task["answer"] in library(0).articles[task["path"][-1]]
        assert task["path"][0] in task["question"]


def test_answers_are_compared_without_case_articles_and_punctuation() -> None:
    assert normal("The River  Norasne.") == normal("norasne")
    assert normal("202,031") == "202031"
    assert normal("Ada Bell") != normal("Ada")


def test_a_question_by_hand() -> None:
    env = cast(Search, make("tool/Search-v1"))
    company = next(title for title, kind in country(0).kinds.items() if kind == "company")
    founder = country(0).facts[company]["founder"]
    year = country(0).facts[founder]["birthyear"]
    env.reset(options={"task": {"world": 0, "question": "?", "answer": year, "path": [company, founder]}})
    assert company in env.step(env.call("search", query=company, limit=1))[0]
    assert founder in env.step(env.call("read", title=company))[0]
    observation, *_, info = env.step(env.call("read", title=founder))
    assert f"born in {year} in" in observation
    assert info["anchor"] == f"open: {', '.join(sorted([company, founder]))}; {company}"
    assert env.fork().step(f"<answer>{int(year) + 1}</answer>")[1] == 0.0
    assert env.step(f"<answer>{year}.</answer>")[1] == 1.0
    for limit in (0, 11, "many"):
        env.reset(seed=1)
        assert env.step(env.call("search", query="a", limit=limit))[4]["illegal"]


@pytest.mark.parametrize("options", [{"hops": "three"}, {"world": -1}, {"world": 1000}, {"world": "x"}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    for build in (Search, tasks):
        with pytest.raises(ValueError, match=next(iter(options))):
            cast(Any, build)(**options)


def test_a_task_brings_its_own_country() -> None:
    env, other = Search(world=0), Search(world=7)
    task = dict(tasks(world=7).get("test", 0).data)
    chance = random.Random(0)
    for one in (env, other):
        one.reset(seed=1, options={"task": task})
    for _ in range(5):
        assert env.legal_actions() == other.legal_actions()
        action = chance.choice(env.legal_actions()[:-1])
        assert env.step(action) == other.step(action)
