"""Curricula: success moves the level, decisions are kept, and a restored state has the same future."""

import json
from collections import Counter

import pytest

from envhub.envs.curriculum import CurriculumStream, Ladder
from envhub.envs.mixture import MixedTasks, mixture
from envhub.errors import ConfigError

MEMBERS = {f"size-{n}": {"id": "game/FrozenLake-v1", "options": {"size": n}} for n in (2, 3, 4)}


def stream(**ladder: float) -> CurriculumStream:
    spec = mixture("mix/Lakes-v1", MEMBERS)
    assert spec.tasks is not None
    tasks = spec.tasks()
    assert isinstance(tasks, MixedTasks)
    return CurriculumStream(tasks, "train", 3, Ladder(**{"window": 4, "review": 0.0, **ladder}))  # type: ignore[arg-type]


def member(tasks: CurriculumStream, place: int) -> str:
    return str(tasks.at(place).data["member"])


def teach(tasks: CurriculumStream, first: int, successes: list[float]) -> None:
    for place, success in enumerate(successes, first):
        tasks.at(place)
        tasks.learn(place, success)


def test_success_raises_the_level_and_failure_lowers_it() -> None:
    tasks = stream()
    assert member(tasks, 0) == "size-2"
    teach(tasks, 0, [1.0, 1.0, 0.0, 1.0])
    assert tasks.level == 0  # 0.75 is under 0.8
    teach(tasks, 4, [1.0, 1.0])
    assert tasks.level == 0  # the last four: 0, 1, 1, 1
    teach(tasks, 6, [1.0])
    assert (tasks.level, member(tasks, 7)) == (1, "size-3")
    teach(tasks, 7, [0.0, 0.5, 0.0, 0.25])
    assert (tasks.level, member(tasks, 20)) == (0, "size-2")
    teach(tasks, 21, [0.0] * 8)
    assert tasks.level == 0
    teach(tasks, 40, [1.0] * 12)
    assert (tasks.level, member(tasks, 60)) == (2, "size-4")
    teach(tasks, 61, [1.0] * 8)
    assert tasks.level == 2


def test_a_place_keeps_its_task_while_its_group_is_played() -> None:
    tasks = stream()
    early = tasks.at(100)
    teach(tasks, 0, [1.0] * 4)
    assert tasks.level == 1
    assert tasks.at(100) == early
    tasks.learn(100, 0.0)  # from before the level moved: it says nothing of the new one
    assert tasks.state()["window"] == []


def test_easier_members_are_reviewed_in_their_share() -> None:
    tasks = stream(review=0.25)
    teach(tasks, 0, [1.0] * 4)
    shares = Counter(member(tasks, place) for place in range(1000, 2000))
    assert 200 < shares["size-2"] < 300
    assert set(shares) == {"size-2", "size-3"}


def test_a_restored_state_has_the_same_future() -> None:
    tasks, again = stream(review=0.3), stream(review=0.3)
    teach(tasks, 0, [1.0] * 6)
    tasks.at(50)
    again.load(json.loads(json.dumps(tasks.state())))
    for place in range(50, 80):
        assert again.at(place) == tasks.at(place)
        for one in (again, tasks):
            one.learn(place, place % 3 / 2)
    assert again.state() == tasks.state()


def test_an_unknown_split_is_refused() -> None:
    spec = mixture("mix/Lakes-v1", MEMBERS)
    assert spec.tasks is not None
    with pytest.raises(ConfigError, match="no split"):
        CurriculumStream(spec.tasks(), "nosuch", 0, Ladder())  # type: ignore[arg-type]
