"""Adapters whose peers are installed here: any Gymnasium id, every reasoning-gym data set, BrowserGym's action strings."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reasoning_gym.factory import DATASETS

from envhub.envs.adapters.browsergym import SIGNATURES, Action, BadAction, parse_actions
from envhub.envs.adapters.gymnasium_text import reader, writer
from envhub.envs.adapters.reasoning_gym_any import NO_ANSWER, TAKES_NONSENSE
from envhub.envs.check import check
from envhub.envs.registry import load_spec, make
from envhub.errors import ConfigError

IDS = [
    "FrozenLake-v1",
    "Taxi-v4",
    "CliffWalking-v1",
    "Blackjack-v1",
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
]


@pytest.mark.parametrize("env_id", IDS)
def test_a_gymnasium_environment_keeps_every_rule(env_id: str) -> None:
    findings = check(load_spec(f"gymnasium:{env_id}"), {})
    assert [(f.rule, f.detail) for f in findings if f.verdict == "failed"] == []


def test_the_text_face_steps_as_the_bare_environment_does() -> None:
    text: Any = make("gymnasium:CartPole-v1")
    bare = gymnasium.make("CartPole-v1")
    shown, _ = text.reset(seed=3)
    assert shown == writer(bare.observation_space)(bare.reset(seed=3)[0])
    for turn in range(60):
        mine = text.step(("push left", "Action: right")[turn % 2])
        observation, reward, terminated, truncated, _ = bare.step(turn % 2)
        assert mine[:4] == (writer(bare.observation_space)(observation), reward, terminated, truncated)
        if terminated:
            break
    assert text.step("left")[1:3] == (0.0, True)


def test_actions_of_every_kind_are_read_from_text() -> None:
    spaces = gymnasium.spaces
    discrete = reader(spaces.Discrete(3, start=5))
    assert [discrete(t) for t in ("take 6", "7.5", "8", "-6", "none", "1e9")] == [6, None, None, None, None, None]
    box = reader(spaces.Box(-1.0, 1.0, (2,), np.float32))
    assert box("0.5 and -3").tolist() == [0.5, -1.0]
    assert box("0.5") is None
    assert box("1 2 3") is None
    assert reader(spaces.MultiDiscrete([3, 2]))("2 1").tolist() == [2, 1]
    assert reader(spaces.MultiDiscrete([3, 2]))("2 2") is None
    assert reader(spaces.MultiBinary(2))("1 0.5") is None
    with pytest.raises(ValueError, match="cannot be written"):
        reader(spaces.Graph(spaces.Discrete(2), None))
    assert writer(spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (2,))))({"a": 1, "b": np.array([0.5, 1 / 3])}) == (
        "a: 1\nb: 0.5 0.3333"
    )


def test_numeric_spaces_can_pass_through() -> None:
    env: Any = make("gymnasium:Pendulum-v1", face="numeric")
    observation, _ = env.reset(seed=1)
    assert observation.shape == (3,)
    assert env.step(np.array([0.5], np.float32))[0].shape == (3,)
    with pytest.raises(ConfigError, match="neither text nor numeric"):
        make("gymnasium:Pendulum-v1", face="sound")


def test_what_does_not_exist_is_a_wrong_request() -> None:
    for wrong in ("gymnasium:NoSuch-v1", "reasoning_gym:nosuch", "nosuch:x", "venv:/no/such:textarena:x", "nemo_gym:x"):
        with pytest.raises(ConfigError):
            load_spec(wrong)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a data set leaves its file open
@pytest.mark.parametrize("dataset", sorted(DATASETS))
def test_a_data_set_scores_its_own_answer_one_and_nonsense_less(dataset: str) -> None:
    options: dict[str, Any] = {}
    if dataset == "composite":
        from reasoning_gym.composite import DatasetSpec

        options = {"datasets": [DatasetSpec(name="chain_sum", weight=1, config={})]}
    spec = load_spec(f"reasoning_gym:{dataset}")
    env: Any = spec.make(**options)
    env.reset(options={"task": {"seed": 11}})
    own = env.step(f"<answer>{env.answer}</answer>")
    env.reset(options={"task": {"seed": 11}})
    nonsense = env.step("<answer>\ud800 nonsense</answer>")
    assert (nonsense[1] < 1.0) == (dataset not in TAKES_NONSENSE)
    assert nonsense[2] is True
    if dataset not in NO_ANSWER or dataset == "composite":
        assert (own[1], own[4]["success"]) == (1.0, True)
    else:
        assert own[1] < 1.0  # once it scores its own answer, it belongs out of NO_ANSWER


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("click('12')", (Action("click", ("12",)),)),
        ("```python\nfill('a', 'b')\nscroll(0, -200.5)\n```", (Action("fill", ("a", "b")), Action("scroll", (0, -200.5)))),
        ("select_option('7', ['x', 'y'])", (Action("select_option", ("7", ["x", "y"])),)),
        ("goto(url='http://a.test')", (Action("goto", (), {"url": "http://a.test"}),)),
        ("noop(); go_back()", (Action("noop"), Action("go_back"))),
    ],
)
def test_browser_actions_are_read(reply: str, wanted: tuple[Action, ...]) -> None:
    assert parse_actions(reply) == wanted


@pytest.mark.parametrize(
    "reply",
    [
        *("", "click", "click(12)", "click()", "click('1', 'left', [], 4)", "explode('1')", "x = click('1')"),
        *("click(bid=open('x'))", "click('1').then()", "__import__('os').system('x')", "fill('1', value=2, colour='red')"),
        *("noop(\n" * 50, "click('1');" * 17, "press(True, 'a')", "tab_focus('1')", "\0", "\ud800", "(" * 5000),
        "click('" + "x" * 100_000 + "')",
    ],
)
def test_bad_browser_actions_are_refused_in_words(reply: str) -> None:
    with pytest.raises(BadAction) as caught:
        parse_actions(reply)
    assert 0 < len(str(caught.value)) < 1000


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | st.builds(lambda n, a: f"{n}({a!r})", st.sampled_from(sorted(SIGNATURES)), st.text(max_size=5)))
def test_no_text_makes_the_reader_raise_anything_else(reply: str) -> None:
    try:
        found = parse_actions(reply)
    except BadAction:
        return
    assert all(action.name in SIGNATURES for action in found)
