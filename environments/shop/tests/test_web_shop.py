"""The shop keeps the rules, pays by the paper's formula, and leads every customer to what they asked for."""

import json
import random
from typing import Any, cast

import pytest
from gymnasium.utils.env_checker import check_env

from envhub.envs import TaskStream, load_spec, make
from envhub.envs.check import check
from envhub_shop.catalogue import Product, catalogue, price
from envhub_shop.goals import goal, worth
from envhub_shop.pages import BUY, DESCRIPTION, FEATURES, HOME, NEXT, PER_PAGE, PREVIOUS, Place
from envhub_shop.ranking import MOST_FOUND, Ranking, ranking, words
from envhub_shop.vocabulary import DEPARTMENTS
from envhub_shop.web_shop import SPEC, WebShop, tasks

HOSTILE = [
    "", " ", "\0", "a" * 1_000_000, "\ud800", "\x1b[2J", "<|im_end|><|im_start|>system", "click[", "click[]", "click[buy now]",
    "search", "[buy now]", "click[[buy now]]", "[" * 100_000, "search[" * 50_000, "click[\ud800]", "click[p0001]", "nan",
]  # fmt: skip
MUG = Product(
    code="p1",
    title="Mug",
    department="kitchen",
    kind="travel mug",
    attributes=frozenset({"leakproof", "bpa free", "easy grip"}),
    options={"color": ("black", "white"), "volume": ("300 ml", "450 ml")},
    price_cents=1549,
)
WANTED = {
    "department": "kitchen",
    "kind": "travel mug",
    "attributes": ["bpa free", "leakproof"],
    "options": {"color": "black"},
    "most_cents": 2000,
}


def shop() -> WebShop:
    return cast(WebShop, make("shop/WebShop-v1"))


def task(place: int, split: str = "test") -> dict[str, Any]:
    return dict(TaskStream(tasks(), split, 0).at(place).data)


def test_every_rule_of_the_kit_is_kept() -> None:
    check_env(shop(), skip_render_check=True)
    findings = check(load_spec("shop/WebShop-v1"), {})
    assert [f"{f.rule}: {f.detail}" for f in findings if f.verdict != "passed"] == ["tools: it declares no tools"]


def test_the_solver_earns_all_of_the_reward_by_legal_actions() -> None:
    for place in range(60):
        env = shop()
        env.reset(options={"task": task(place)})
        ended, turns = False, 0
        while not ended:
            action = env.solve()
            assert action.startswith("search[") or action in env.legal_actions()
            _, reward, ended, _, info = env.step(action)
            turns += 1
        assert (reward, info["success"]) == (1.0, True)
        assert sum(info["reward_parts"].values()) == pytest.approx(1.0)
        assert turns <= SPEC.max_turns


@pytest.mark.parametrize("action", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_action_is_answered_in_words(action: str) -> None:
    env = shop()
    before, _ = env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated, info["illegal"]) == (0.0, False, False, True)
    assert observation.endswith(before)
    assert len(observation.encode()) < 2000
    json.dumps(info)


@pytest.mark.parametrize("query", ["", "\ud800", "zzzz", "\0", "x" * 4000, "' -- ?"])
def test_a_search_for_nonsense_finds_nothing_and_leads_back(query: str) -> None:
    env = shop()
    env.reset(seed=1)
    observation, *_, info = env.step(f"search[{query}]")
    assert observation.endswith(f"No product is found.\n[{HOME}]")
    assert "illegal" not in info
    assert env.legal_actions() == (f"click[{HOME}]",)
    assert "search[words]" in env.step(f"click[{HOME}]")[0]


@pytest.mark.parametrize(
    ("change", "chosen", "reward"),
    [
        ({}, {"color": "black"}, 1.0),
        ({}, {}, 3 / 4),
        ({}, {"color": "white"}, 3 / 4),
        ({}, {"volume": "300 ml"}, 3 / 4),
        ({"most_cents": 1500}, {"color": "black"}, 3 / 4),
        ({"most_cents": 1549}, {"color": "black"}, 1.0),
        ({"attributes": ["bpa free", "non-stick"]}, {"color": "black"}, 3 / 4),
        ({"attributes": ["stackable", "non-stick"], "most_cents": 1}, {}, 0.0),
        ({"kind": "lunch box"}, {"color": "black"}, 0.5),
        ({"kind": "lunch box"}, {}, 0.375),
        ({"kind": "pillow", "department": "bedding"}, {"color": "black"}, 0.0),
        ({"options": {"color": "black", "volume": "450 ml"}}, {"color": "black"}, 4 / 5),
    ],
)
def test_a_purchase_is_worth_what_the_formula_says(change: dict[str, Any], chosen: dict[str, str], reward: float) -> None:
    value = worth({**WANTED, **change}, MUG, chosen)
    assert value.reward == pytest.approx(reward)
    assert sum(value.parts.values()) == pytest.approx(reward)


def test_a_visit_by_hand() -> None:
    env, wanted = shop(), task(0)
    target = catalogue(0)[wanted["target"]]
    observation, _ = env.reset(options={"task": wanted})
    assert observation == f"{wanted['instruction']}\n\nSearch the shop: search[words]"
    observation, *_ = env.step(f"I should look for it: SEARCH[ {target.title.upper()} ]")
    assert f"[{target.code}] {target.title}; {price(target.price_cents)}" in observation
    assert env.step("search[again]")[4]["illegal"]
    observation, *_ = env.step(f"search[{HOME}] no, better click[{target.code}]")
    assert f"[{BUY}]" in observation
    for text in (DESCRIPTION, FEATURES):
        observation, *_ = env.step(f"click[{text}]")
        assert observation.endswith(f"[{HOME}] [{PREVIOUS}]")
        assert text == DESCRIPTION or all(f"- {attribute}" in observation for attribute in target.attributes)
        assert env.step("click[buy now]")[4]["illegal"]
        env.step(f"click[{PREVIOUS}]")
    for value in wanted["options"].values():
        observation, *_ = env.step(f"click[{value}]")
        assert f"[{value}] (chosen)" in observation
    twin = env.fork()
    assert env.step("click[Buy  Now]")[1:3] == (1.0, True)
    assert env.step("click[buy now]")[:3] == ("The episode is over.", 0.0, True)
    assert env.legal_actions() == ()
    twin.step(f"click[{PREVIOUS}]")
    twin.step(f"click[{target.code}]")
    assert twin.place.chosen == {}  # a choice does not outlive its page
    assert twin.step("click[buy now]")[1] < 1.0


def test_another_value_of_an_option_takes_the_place_of_the_first() -> None:
    product = next(iter(catalogue(0).values()))
    name, values = next(iter(product.options.items()))
    place = Place(0, words(product.title), code=product.code).click(values[0]).click(values[1])
    assert place.chosen == {name: values[1]}


def test_pages_of_results_hold_every_product_once() -> None:
    place, seen = Place(0).search("bag lamp"), []
    for page in range(MOST_FOUND // PER_PAGE):
        assert place.page == page
        seen += place.shown
        assert (PREVIOUS in place.buttons()) == (page > 0)
        if NEXT in place.buttons():
            place = place.click(NEXT)
    assert seen == place.found
    assert len(set(seen)) == MOST_FOUND
    assert NEXT not in place.buttons()
    assert place.click(PREVIOUS).page == place.page - 1


def test_bm25_by_hand() -> None:
    def named(code: str, title: str) -> Product:
        return Product(code, title, "", "", frozenset(), {}, 1)

    found = Ranking([named("p1", "red cup"), named("p2", "red red pan"), named("p3", "blue pan")])
    assert found.search(["red"]) == ["p2", "p1"]
    assert found.search(["cup"]) == ["p1"]
    assert found.search(["pan", "blue"]) == ["p3", "p2"]
    # 2 words where the mean is 7/3: ln(1 + 2.5 / 1.5) * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 6 / 7)) = 0.980829 * 2.2 / 2.071429
    assert found._weights["cup"]["p1"] == pytest.approx(1.041708, rel=1e-5)
    assert found.search([]) == []


def test_a_shop_is_the_same_each_time_and_every_product_can_be_bought() -> None:
    products = catalogue(0)
    assert catalogue.__wrapped__(0) == products
    assert catalogue(1) != products
    assert len(products) == 480
    for product in products.values():
        department = DEPARTMENTS[product.department]
        values = [value for values in product.options.values() for value in values]
        assert len(set(values)) == len(values)
        assert not set(values) & {HOME, NEXT, PREVIOUS, DESCRIPTION, FEATURES, BUY}
        assert product.attributes < set(department.attributes)
        assert ranking(0).search(words(product.title)).index(product.code) < 30


def test_goals_can_be_met_and_say_what_they_ask() -> None:
    for seed in range(300):
        wanted = goal(seed, shop=0)
        target = catalogue(0)[wanted["target"]]
        assert worth(wanted, target, wanted["options"]).reward == 1.0
        assert all(part in wanted["instruction"] for part in (*wanted["attributes"], target.kind, price(wanted["most_cents"])))


def test_episodes_repeat_by_seed_and_task_and_forks_share_their_future() -> None:
    def play(env: WebShop, chance: random.Random, turns: int) -> list[Any]:
        seen: list[Any] = []
        while env.legal_actions() and len(seen) < turns:
            seen.append(env.step(chance.choice(env.legal_actions())))
        return seen

    for place in range(10):
        episodes = []
        for _ in range(2):
            env = shop()
            start = env.reset(seed=5, options={"task": task(place)})
            episodes.append([start, *play(env, random.Random(place), 30)])
        assert episodes[0] == episodes[1]
        env.reset(seed=place)
        play(env, random.Random(place), 3)
        twin, held = env.fork(), env.snapshot()
        future = play(env, random.Random(7), 10)
        assert play(twin, random.Random(7), 10) == future
        env.restore(held)
        assert play(env, random.Random(7), 10) == future


def test_splits_share_no_task() -> None:
    streams = {split: TaskStream(tasks(), split, 0) for split in tasks().splits}
    seen = {split: {stream.at(place).id for place in range(150)} for split, stream in streams.items()}
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & (seen["train"] | seen["test"])


@pytest.mark.parametrize("number", [-1, 1000, "x"])
def test_a_shop_that_is_none_is_refused(number: Any) -> None:
    for build in (WebShop, tasks):
        with pytest.raises(ValueError, match="must be an integer"):
            cast(Any, build)(shop=number)
