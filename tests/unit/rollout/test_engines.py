from math import inf
from typing import Any

import pytest

from envhub.rollout.config import RolloutConfig
from envhub.rollout.engines import EngineModel, Engines
from envhub.rollout.simulate import Simulation, simulate
from envhub.rollout.workload import Workload


def model(**given: Any) -> EngineModel:
    """One token takes a second, and a second more for every row; nothing else takes time."""
    bare = {
        "step_s": 1,
        "row_s": 1,
        "prefill_s": 0,
        "prompt_tokens": 0,
        "observation_tokens": 0,
        "reply_tokens": 10,
        "env_s": 0,
    }
    return EngineModel.model_validate({**bare, **given})


def ends(engines: Engines, starts: dict[str, tuple[float, float]]) -> dict[str, float]:
    """When episodes end that begin at a time and have a scale."""
    found: dict[str, float] = {}
    left = dict(starts)
    while left or engines.next() < inf:
        name = min(left, key=lambda each: left[each][0], default=None)
        if name is not None and left[name][0] <= engines.next():
            when, scale = left.pop(name)
            engines.start(name, scale, when)
            continue
        when = engines.next()
        ended = engines.happen()
        if ended is not None:
            found[ended] = when
    return found


def test_a_row_alone_and_rows_that_share_the_engine() -> None:
    assert ends(Engines(model(), 1, adapts=False), {"a": (0, 1)}) == {"a": 20}
    assert ends(Engines(model(), 1, adapts=False), {"a": (0, 1), "b": (0, 1)}) == {"a": 30, "b": 30}
    # from 10 to 25 both run at 3 s a token; before and after, one at 2 s
    assert ends(Engines(model(), 1, adapts=False), {"a": (0, 1), "b": (10, 1)}) == {"a": 25, "b": 35}


def test_longer_episodes_have_longer_turns_and_steps() -> None:
    assert ends(Engines(model(env_s=7), 2, adapts=False), {"a": (0, 3)}) == {"a": 2 * (60 + 21)}


@pytest.mark.parametrize("limit", [{"max_rows": 1}, {"kv_tokens": 15}])
def test_a_turn_waits_for_a_row_and_for_room_in_the_cache(limit: dict[str, int]) -> None:
    assert ends(Engines(model(**limit), 1, adapts=False), {"a": (0, 1), "b": (1, 1)}) == {"a": 20, "b": 40}


def test_a_prompt_is_computed_once_while_its_cache_lasts() -> None:
    long = {"prompt_tokens": 100, "observation_tokens": 5, "prefill_s": 1}
    alone = Engines(model(**long), 2, adapts=False)
    assert ends(alone, {"a": (0, 1)}) == {"a": (100 + 20) + (5 + 20)}
    assert (alone.load().computed, alone.load().evicted, alone.sampled) == (105, 0, 20)

    crowded = Engines(model(**long, kv_tokens=130, env_s=1000), 2, adapts=False)
    ends(crowded, {"a": (0, 1), "b": (500, 1)})  # b needs the room while a is with its environment
    assert crowded.load().evicted == 110 + 110 + 125  # a's by b, b's by a, and a's again in its last step
    assert crowded.load().computed == 2 * (100 + 110 + 5)
    assert crowded.evicted_share == 345 / 430


def test_new_weights_hold_the_rows_and_cost_the_caches() -> None:
    engines = Engines(model(publish_s=50, prompt_tokens=8, prefill_s=1, env_s=2), 2, adapts=False)
    engines.start("a", 1, 0)
    engines.publish(10)  # 8 s of prompt, 2 s into the first token
    times = []
    while engines.next() < inf:
        times.append(engines.next())
        engines.happen()
    assert times == [78, 80, 100, 102]
    assert engines.standing_s == 50


@pytest.mark.parametrize(("publish", "standing"), [("together", [1.0, 1.0]), ("rolling", [1.0, 0.0])])
def test_rolling_engines_take_new_weights_one_after_another(publish: str, standing: list[float]) -> None:
    engines = Engines(model(count=2, publish_s=1, publish=publish, env_s=0), 1, adapts=False)
    engines.start("a", 1, 0)
    engines.start("b", 1, 0)
    engines.publish(0)
    assert [engine.standing_s for engine in engines._engines] == standing
    assert ends(engines, {}) == {"a": 21, "b": 21}


def test_an_episode_that_is_taken_away_frees_its_place() -> None:
    engines = Engines(model(max_rows=1), 1, adapts=False)
    for name in "abc":
        engines.start(name, 1, 0)
    engines.stop("b", 5)
    engines.stop("a", 5)
    assert engines.load().running == 1
    assert ends(engines, {}) == {"c": 25}


def run(limit: Any, slots: int, **engines: Any) -> Simulation:
    config = RolloutConfig.model_validate(
        {
            "groups_per_update": 32,
            "max_staleness": 2,
            "max_in_flight": limit,
            "episode_deadline_s": 1e9,
            "group_deadline_s": 1e9,
        }
    )
    made = EngineModel.model_validate({"kv_tokens": 150_000, "prefill_s": 1e-4, **engines})
    return simulate(config, Workload(slots=slots, sigma=0.5, turns=10, updates=12, engines=made))


def test_what_is_in_flight_adapts_to_what_the_cache_holds() -> None:
    fixed = {slots: run(None, slots).sampled_per_s for slots in (16, 32, 64, 128)}
    adapted = run("auto", 1024)
    assert adapted.sampled_per_s > 0.9 * max(fixed.values())
    assert fixed[128] < 0.4 * max(fixed.values())  # a guess that is twice too high costs more than half
    assert adapted.in_flight < 128
    assert adapted == run("auto", 1024)


def test_slots_bound_what_is_adapted() -> None:
    assert run("auto", 24).in_flight == 24


def test_an_episode_stays_where_its_cache_is() -> None:
    stays, roams = (run(None, 128, count=8, affinity=affinity, kv_tokens=400_000) for affinity in (True, False))
    assert stays.sampled_per_s > 1.3 * roams.sampled_per_s
