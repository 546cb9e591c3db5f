from typing import cast

import pytest
from gymnasium.utils.env_checker import check_env

from envhub.envs import Env, TaskStream, load_spec, make
from envhub_reasoning.questions import Question, extract

DATASETS = ["basic_arithmetic", "chain_sum", "gcd", "leg_counting", "spell_backward"]


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_right_answer_scores_one_and_nonsense_does_not(dataset: str) -> None:
    spec = load_spec(f"reasoning/{dataset}-v1")
    assert spec.tasks is not None
    for place in range(3):
        env = cast(Question, make(spec.id))
        env.reset(options={"task": dict(TaskStream(spec.tasks(), "train", 0).at(place).data)})
        answer = env._entry["answer"]
        _, reward, terminated, _, info = env.step(f"I think <answer>no</answer>, rather <answer> {answer} </answer>")
        assert (reward, terminated, info["success"]) == (1.0, True, True)
        env.reset(options={"task": dict(TaskStream(spec.tasks(), "train", 0).at(place).data)})
        assert float(env.step("<answer>nonsense</answer>")[1]) < 1.0


@pytest.mark.parametrize("dataset", DATASETS)
def test_gymnasiums_own_check_passes(dataset: str) -> None:
    check_env(cast(Env, make(f"reasoning/{dataset}-v1")), skip_render_check=True)


@pytest.mark.parametrize("reply", ["", "\0", "\ud800", "<answer>", "</answer><answer>", "x" * 1_000_000])
def test_a_hostile_reply_is_scored_and_not_raised(reply: str) -> None:
    env = cast(Env, make("reasoning/chain_sum-v1"))
    env.reset(seed=1)
    assert float(env.step(reply)[1]) < 1.0


def test_the_last_tagged_answer_counts() -> None:
    assert extract("<answer>1</answer> <answer>2</answer> 3") == "2"
    assert extract("  7 ") == "7"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [("The answer is 6.", "6"), ("3 - 4 = -1", "-1"), ("none", ""), ("1.5 or 2.5", "2.5"), ("<answer>8</answer> 9", "8")],
)
def test_an_untagged_reply_can_count_by_its_last_number(reply: str, answer: str) -> None:
    assert extract(reply, untagged="last_number") == answer


@pytest.mark.parametrize("name", [*DATASETS, "math"])
def test_a_random_player_knows_the_kind_of_answer_and_not_the_answer(name: str) -> None:
    env = cast(Env, make(f"reasoning/{name}-v1"))
    rewards = []
    for seed in range(25):
        env.reset(seed=seed)
        guesses = env.legal_actions()
        assert guesses == env.legal_actions()
        assert all(guess.startswith(("<answer>", "\\boxed{")) for guess in guesses)
        rewards.append(float(env.step(guesses[seed % len(guesses)])[1]))
    assert sum(reward == 1.0 for reward in rewards) < 12
