"""Memory: records change message by message; the player keeps a key-value memory true to them and answers from it."""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from envhub.envs import EnvSpec, GeneratedTasks
from envhub.envs.core import Info
from envhub.envs.tools import ToolError, tool
from envhub_tools.question import ToolQuestion
from envhub_tools.records import NOTHING, after, say, story
from envhub_tools.styles import checked_style, tagged_answer

MOST_KEYS, LONGEST_KEY, LONGEST_VALUE = 64, 80, 200
MOST_FACTS, MOST_QUESTIONS = 12, 5


class Memory(ToolQuestion):
    """Some messages tell facts, the last ones ask. A reply without a call ends a message; to a question it is the answer.

    Each right answer earns an equal part of the reward, and so does a memory that holds exactly what is true at the end.
    """

    def __init__(self, *, facts: int = 6, questions: int = 3, style: str = "hermes") -> None:
        """Tell so many facts and ask so many questions. A task brings its own."""
        super().__init__(style=style)
        _check(facts, questions)
        self._facts, self._questions = facts, questions

    def begin(self, task: Mapping[str, Any] | None) -> str:
        """Fill the memory with the records of the start, and show the first message."""
        if task is None:
            task = story(int(self.np_random.integers(2**62)), facts=self._facts, questions=self._questions)
        self.task = dict(task)
        self.store: dict[str, str] = dict(self.task["start"])
        self.truth: dict[str, str] = dict(self.task["start"])
        self.place, self.right = 0, 0
        return self._message()

    def finish(self, answer: str) -> tuple[float, Info]:
        """Score a question's answer and go on to the next message; the last one ends the episode."""
        events, asked = self.task["events"], self.task["asked"]
        part, right = 1 / (len(asked) + 1), False
        if self.place >= len(events):
            right = tagged_answer(answer)[0] == self._wanted()
        self.right += right
        self.place += 1
        self.done = self.place == len(events) + len(asked)
        kept = self.done and self.store == self.truth
        info: Info = {"reward_parts": {"answer": part * right, "memory": part * kept}}
        if self.done:
            info["success"] = kept and self.right == len(asked)
        return part * right + part * kept, info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Run the reply's calls, or go on to the next message."""
        before = self.place
        observation, reward, _, truncated, info = super().step(action)
        if self.place > before and not self.done:
            observation = self._message()
        return observation, reward, self.done, truncated, info

    def anchor(self) -> str:
        """Which message it is, how many answers were right, and what the memory holds."""
        held = hashlib.blake2b(json.dumps(self.store, sort_keys=True).encode(), digest_size=8).hexdigest()
        return f"{self.place} {self.right} {held}"

    @tool
    def put(self, key: str, value: str) -> str:
        """Keep a value under a key, in place of any that is there.

        Args:
            key: the record's name, such as locker of Ana.
            value: its number.
        """
        if len(key) > LONGEST_KEY or len(value) > LONGEST_VALUE:
            raise ToolError(f"a key has at most {LONGEST_KEY} characters and a value {LONGEST_VALUE}")
        if key not in self.store and len(self.store) >= MOST_KEYS:
            raise ToolError(f"the memory is full: it has {MOST_KEYS} keys")
        self.store[key] = value
        return "kept"

    @tool
    def get(self, key: str) -> str:
        """Give the value under a key.

        Args:
            key: the record's name.
        """
        return self.store[self._known(key)]

    @tool
    def keys(self) -> list[str]:
        """Give all keys."""
        return sorted(self.store)

    @tool
    def delete(self, key: str) -> str:
        """Forget a key and its value.

        Args:
            key: the record's name.
        """
        del self.store[self._known(key)]
        return "forgotten"

    def legal_actions(self) -> tuple[str, ...]:
        """Looks at the memory, a change of it, and replies that answer no question."""
        key = min(self.store, default="desk of Bo")
        looks = (self.call("keys"), self.call("get", key=key), self.call("delete", key=key))
        return (*looks, self.call("put", key=key, value=str(self.place)), self.reply("noted"))

    def solve(self) -> str:
        """Bring the memory up to date, then answer."""
        for key in self.store:
            if key not in self.truth:
                return self.call("delete", key=key)
        for key, value in self.truth.items():
            if self.store.get(key) != value:
                return self.call("put", key=key, value=value)
        return self.reply("noted" if self.place < len(self.task["events"]) else self._wanted())

    def _message(self) -> str:
        """The message at the current place; telling an event makes it true."""
        events, asked = self.task["events"], self.task["asked"]
        if self.place < len(events):
            self.truth = after(self.truth, events[self.place])
            return say(events[self.place])
        return f"What is the number of the {asked[self.place - len(events)]}?"

    def _wanted(self) -> str:
        return self.truth.get(self.task["asked"][self.place - len(self.task["events"])], NOTHING)

    def _known(self, key: str) -> str:
        if key not in self.store:
            raise ToolError(f"no key {key[:LONGEST_KEY]!r}")
        return key


def tasks(*, facts: int = 6, questions: int = 3, style: str = "hermes") -> GeneratedTasks:
    """Stories by seed."""
    _check(facts, questions)
    checked_style(style)
    return GeneratedTasks(partial(story, facts=facts, questions=questions))


def _check(facts: int, questions: int) -> None:
    for name, value, most in (("facts", facts, MOST_FACTS), ("questions", questions, MOST_QUESTIONS)):
        if not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"{name} {value!r} must be an integer from 1 to {most}")


SPEC = EnvSpec(
    id="tool/Memory-v1",
    make=Memory,
    tasks=tasks,
    instructions=(
        "You keep an office's records in a memory, which the tools reach; some records are in it already. A key is the "
        "record's name, such as locker of Ana; a value is a number. Each message tells what has changed, or asks. Bring the "
        "memory up to date by tool calls; then reply without a call, which ends the message. To a question reply with the "
        f"number alone between <answer> and </answer>, or with {NOTHING} if there is no such record. At the end the memory "
        "must hold what is true and nothing else."
    ),
    max_turns=64,
    inline=True,
    baselines={"random": 0.0, "solver": 1.0},
    solver=Memory.solve,
    tools=Memory.toolbox().schemas(),
)
