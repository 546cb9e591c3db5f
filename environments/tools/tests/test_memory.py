"""The memory is the episode's own, has limits, and is judged by what is true at the end."""

from typing import Any, cast

import pytest

from envhub.envs import make
from envhub_tools.memory import LONGEST_KEY, LONGEST_VALUE, MOST_KEYS, Memory, tasks
from envhub_tools.records import after, say, story

TASK = {
    "start": {"desk of Bo": "1111", "desk of Cem": "2222"},
    "events": [["copy", "desk of Ana", "desk of Bo"], ["drop", "desk of Cem"]],
    "asked": ["desk of Ana", "desk of Cem"],
}


def begun() -> Memory:
    env = cast(Memory, make("tool/Memory-v1"))
    env.reset(seed=0, options={"task": TASK})
    return env


def test_an_office_by_hand() -> None:
    env = begun()
    assert env.step(env.call("keys"))[0] == '["desk of Bo", "desk of Cem"]'
    assert env.step(env.call("get", key="desk of Bo"))[0] == "1111"
    assert env.step(env.call("put", key="desk of Ana", value="1111"))[0] == "kept"
    assert env.step("noted")[:3] == ("The desk of Cem is given up: there is no such record any more.", 0.0, False)
    assert env.step(env.call("delete", key="desk of Cem"))[0] == "forgotten"
    assert env.step("noted")[:3] == ("What is the number of the desk of Ana?", 0.0, False)
    question, reward, terminated, _, info = env.step("<answer>1111</answer>")
    assert (question, terminated) == ("What is the number of the desk of Cem?", False)
    assert reward == pytest.approx(1 / 3)
    assert "success" not in info
    _, reward, terminated, _, info = env.step("unknown")
    assert (terminated, info["success"]) == (True, True)
    assert reward == pytest.approx(2 / 3)
    assert info["reward_parts"] == pytest.approx({"answer": 1 / 3, "memory": 1 / 3})
    assert env.step("1111")[:3] == ("The episode is over.", 0.0, True)


def test_right_answers_from_an_unkept_memory_are_no_success() -> None:
    env = begun()
    earned = [env.step(reply) for reply in ("ok", "ok", "1111", "unknown")]
    assert [step[1] for step in earned] == pytest.approx([0, 0, 1 / 3, 1 / 3])
    assert earned[-1][4]["success"] is False


def test_a_kept_memory_with_a_wrong_answer_is_no_success() -> None:
    env = begun()
    env.step(env.call("put", key="desk of Ana", value="1111") + env.call("delete", key="desk of Cem"))
    earned = [env.step(reply) for reply in ("ok", "ok", "1112", "unknown")]
    assert sum(step[1] for step in earned) == pytest.approx(2 / 3)
    assert earned[-1][4]["success"] is False


def test_events_by_hand() -> None:
    start = {"a": "1", "b": "2"}
    assert after(start, ["set", "c", "3"]) == {"a": "1", "b": "2", "c": "3"}
    assert after(start, ["copy", "c", "a"]) == {"a": "1", "b": "2", "c": "1"}
    assert after(start, ["swap", "a", "b"]) == {"a": "2", "b": "1"}
    assert after(start, ["drop", "a"]) == {"b": "2"}
    assert start == {"a": "1", "b": "2"}
    assert say(["swap", "a", "b"]) == "The a and the b have swapped their numbers."


def test_a_memory_belongs_to_its_episode_alone() -> None:
    one, two = begun(), begun()
    one.step(one.call("put", key="spare", value="9"))
    twin = one.fork()
    one.step(one.call("delete", key="spare"))
    assert one.step(one.call("get", key="spare"))[0] == "error: get: no key 'spare'"
    assert two.step(two.call("get", key="spare"))[0] == "error: get: no key 'spare'"
    assert twin.step(twin.call("get", key="spare"))[0] == "9"
    assert TASK["start"] == {"desk of Bo": "1111", "desk of Cem": "2222"}
    one.step(one.call("put", key="spare", value="9"))
    one.reset(options={"task": TASK})
    assert one.step(one.call("keys"))[0] == '["desk of Bo", "desk of Cem"]'


def test_the_memory_has_limits() -> None:
    env = begun()
    for key, value in (("k" * (LONGEST_KEY + 1), "1"), ("k", "1" * (LONGEST_VALUE + 1))):
        assert env.step(env.call("put", key=key, value=value))[0].startswith("error: put: a key has at most")
    for number in range(MOST_KEYS - 2):
        assert env.step(env.call("put", key=str(number), value="1"))[0] == "kept"
    assert env.step(env.call("put", key="more", value="1"))[0].startswith("error: put: the memory is full")
    assert env.step(env.call("put", key="0", value="2"))[0] == "kept"


def test_what_no_encoding_holds_may_be_kept_and_is_shown_readably() -> None:
    env = begun()
    assert env.step('<tool_call>{"name": "put", "arguments": {"key": "\\ud800", "value": "\\udfff"}}</tool_call>')[0] == "kept"
    observation, *_, info = env.step(env.call("keys"))
    assert observation == '["desk of Bo", "desk of Cem", "?"]'
    info["anchor"].encode()


@pytest.mark.parametrize(("facts", "questions"), [(1, 1), (1, 5), (6, 3), (12, 5)])
def test_every_story_changes_its_records_and_asks_different_keys(facts: int, questions: int) -> None:
    for seed in range(300):
        task = story(seed, facts=facts, questions=questions)
        records = dict(task["start"])
        for event in task["events"]:
            records = after(records, event)
        assert records != task["start"]
        assert len(set(task["asked"])) == questions
        assert len(task["events"]) == facts


def test_the_longest_story_is_solved_within_the_turns() -> None:
    for place in range(10):
        env = Memory(facts=12, questions=5)
        env.reset(options={"task": dict(tasks(facts=12, questions=5).get("test", place).data)})
        turns, ended = 0, False
        while not ended:
            _, _, ended, _, info = env.step(env.solve())
            turns += 1
        assert info["success"]
        assert turns <= 48


@pytest.mark.parametrize("options", [{"facts": 0}, {"facts": 13}, {"questions": 6}, {"questions": "x"}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    for build in (Memory, tasks):
        with pytest.raises(ValueError, match=next(iter(options))):
            cast(Any, build)(**options)
