"""Lenses: small changes to what a policy sees, does and earns, the same for synchronous and asynchronous environments.

    wrap(env, [TimeLimit(20), FormatReward(r"<answer>.*</answer>", 0.1)])

A lens is built anew for every environment, and `reset` starts it again. Lenses are applied to actions from the first to the
last, and to answers from the last to the first.
"""

import copy
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, SupportsFloat

from envhub.envs.core import AsyncEnv, Env, Info
from envhub.envs.spec import EnvSpec
from envhub.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Answer:
    """What `step` gives, or `reset` with a reward of 0."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Info = field(default_factory=dict)


class Lens:
    """Changes nothing. Override what should."""

    def reset(self, answer: Answer) -> Answer:
        """An episode begins."""
        return answer

    def step(self, action: str, answer: Answer) -> Answer:
        """The environment has answered an action."""
        return answer


class TimeLimit(Lens):
    """Truncates an episode after `max_turns` steps."""

    def __init__(self, max_turns: int) -> None:
        """Raises ConfigError unless at least one turn is allowed."""
        self._max_turns = _at_least_one(max_turns, "max_turns")
        self._turns = 0

    def reset(self, answer: Answer) -> Answer:
        self._turns = 0
        return answer

    def step(self, action: str, answer: Answer) -> Answer:
        self._turns += 1
        return replace(answer, truncated=answer.truncated or (self._turns >= self._max_turns and not answer.terminated))


class FormatReward(Lens):
    """Adds `bonus` to a step's reward where the reply matches a pattern as a whole, under the part's name "format"."""

    def __init__(self, pattern: str, bonus: float) -> None:
        """Raises ConfigError for a pattern that is no regular expression."""
        try:
            self._pattern, self._bonus = re.compile(pattern, re.S), float(bonus)
        except (re.error, TypeError, ValueError) as error:
            raise ConfigError(
                f"format {pattern!r}, {bonus!r}: {error}", mend="give a regular expression and a number"
            ) from error

    def step(self, action: str, answer: Answer) -> Answer:
        earned = self._bonus if self._pattern.fullmatch(action.strip()) else 0.0
        parts = {**answer.info.get("reward_parts", {"task": answer.reward}), "format": earned}
        return replace(answer, reward=answer.reward + earned, info={**answer.info, "reward_parts": parts})


class HistoryWindow(Lens):
    """Shows the last `turns` exchanges before each observation, for policies that remember nothing."""

    def __init__(self, turns: int) -> None:
        """Raises ConfigError unless at least one turn is shown."""
        self._past: deque[str] = deque(maxlen=_at_least_one(turns, "turns"))
        self._last = ""

    def reset(self, answer: Answer) -> Answer:
        self._past.clear()
        self._last = answer.observation
        return answer

    def step(self, action: str, answer: Answer) -> Answer:
        self._past.append(f"{self._last}\n> {action}")
        self._last = answer.observation
        return replace(answer, observation="\n".join([*self._past, answer.observation]))


class ActionRetry(Lens):
    """Allows `retries` illegal actions in a row; one more truncates the episode with a penalty."""

    def __init__(self, retries: int, penalty: float = 0.0) -> None:
        """`penalty` is added to the reward of the step that truncates: 0 or below. Raises ConfigError."""
        if retries < 0 or not penalty <= 0:
            raise ConfigError(f"retries={retries}, penalty={penalty}", mend="give retries >= 0 and a penalty <= 0")
        self._retries, self._penalty, self._illegal = retries, penalty, 0

    def reset(self, answer: Answer) -> Answer:
        self._illegal = 0
        return answer

    def step(self, action: str, answer: Answer) -> Answer:
        self._illegal = self._illegal + 1 if answer.info.get("illegal") else 0
        if self._illegal <= self._retries or answer.terminated:
            return answer
        return replace(answer, truncated=True, reward=answer.reward + self._penalty)


def _at_least_one(number: int, name: str) -> int:
    if number < 1:
        raise ConfigError(f"{name}={number}", mend="give at least 1")
    return number


def about_four_characters(text: str) -> int:
    """A token count for when no tokenizer is at hand: four bytes are about a token of English."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


class ObservationBudget(Lens):
    """Cuts the middle out of observations of more than `max_tokens` tokens, and says how much was cut."""

    def __init__(self, max_tokens: int, count: Callable[[str], int] = about_four_characters) -> None:
        """`count` gives a text's tokens; never less for a longer part of it. Raises ConfigError below 16 tokens."""
        if max_tokens < 16:
            raise ConfigError(f"max_tokens={max_tokens}", mend="give an observation at least 16 tokens")
        self._max_tokens, self._count = max_tokens, count

    def reset(self, answer: Answer) -> Answer:
        return replace(answer, observation=self._cut(answer.observation))

    def step(self, action: str, answer: Answer) -> Answer:
        return replace(answer, observation=self._cut(answer.observation))

    def _cut(self, text: str) -> str:
        if self._count(text) <= self._max_tokens:
            return text
        low, high = 0, len(text) // 2  # the most characters to keep at either end
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._count(_shortened(text, middle)) <= self._max_tokens else (low, middle - 1)
        return _shortened(text, low)


def _shortened(text: str, ends: int) -> str:
    return f"{text[:ends]}\n[{len(text) - 2 * ends} characters left out]\n{text[len(text) - ends :]}"


def wrap(env: Env | AsyncEnv, lenses: Sequence[Lens]) -> Env | AsyncEnv:
    """The environment seen through lenses."""
    return _Wrapped(env, lenses) if isinstance(env, Env) else _AsyncWrapped(env, lenses)


def wrapped_spec(spec: EnvSpec, make_lenses: Callable[[], Sequence[Lens]]) -> EnvSpec:
    """The spec whose environments are seen through lenses, which are built anew for each."""
    return replace(spec, make=lambda **options: wrap(spec.make(**options), make_lenses()))


LENSES: dict[str, Callable[..., Lens]] = {
    "time_limit": TimeLimit,
    "format_reward": FormatReward,
    "history_window": HistoryWindow,
    "action_retry": ActionRetry,
    "observation_budget": ObservationBudget,
}


def build_lenses(wanted: Sequence[dict[str, Any]]) -> list[Lens]:
    """Lenses as a config writes them: [{name: time_limit, max_turns: 20}, ...]. Raises ConfigError."""
    lenses = []
    for entry in wanted:
        options = dict(entry)
        name = options.pop("name", None)
        if name not in LENSES:
            raise ConfigError(f"no wrapper {name!r}", mend=f"use one of: {', '.join(LENSES)}")
        try:
            lenses.append(LENSES[name](**options))
        except TypeError as error:
            raise ConfigError(f"wrapper {name}: {error}", mend="correct its options") from error
    return lenses


def _begun(given: tuple[str, Info], lenses: Sequence[Lens]) -> tuple[str, Info]:
    answer = Answer(given[0], info=given[1])
    for lens in reversed(lenses):
        answer = lens.reset(answer)
    return answer.observation, answer.info


def _seen(
    action: str, given: tuple[str, SupportsFloat, bool, bool, Info], lenses: Sequence[Lens]
) -> tuple[str, float, bool, bool, Info]:
    answer = Answer(given[0], float(given[1]), given[2], given[3], given[4])
    for lens in reversed(lenses):
        answer = lens.step(action, answer)
    return answer.observation, answer.reward, answer.terminated, answer.truncated, answer.info


class _Wrapped(Env):
    def __init__(self, env: Env, lenses: Sequence[Lens]) -> None:
        self.env, self._lenses = env, tuple(lenses)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.state_level = env.state_level  # type: ignore[misc]  # as the wrapped environment promises

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        return _begun(self.env.reset(seed=seed, options=options), self._lenses)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        return _seen(action, self.env.step(action), self._lenses)

    def legal_actions(self) -> tuple[str, ...]:
        return self.env.legal_actions()

    def snapshot(self) -> Any:
        return self.env.snapshot(), copy.deepcopy(self._lenses)

    def restore(self, snapshot: Any) -> None:
        inner, lenses = snapshot
        self.env.restore(inner)
        self._lenses = copy.deepcopy(lenses)

    def fork(self) -> Self:
        return type(self)(self.env.fork(), copy.deepcopy(self._lenses))

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)  # what a solver may look at

    def close(self) -> None:
        self.env.close()


class _AsyncWrapped:
    def __init__(self, env: AsyncEnv, lenses: Sequence[Lens]) -> None:
        self._env, self._lenses = env, tuple(lenses)

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        return _begun(await self._env.reset(seed=seed, options=options), self._lenses)

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        return _seen(action, await self._env.step(action), self._lenses)

    async def close(self) -> None:
        await self._env.close()
