"""Environments of verifiers 0.1 to 0.3 (`load_environment`): `verifiers:my_env`, hosted unchanged.

The environment's own rollout runs in a thread; where it asks its model, the question is handed out as an observation and the
next action is the answer. So whatever kind of environment it is (single turn, multi-turn, tools), its loop, its tools and its
rubric are its own. Calls in a reply, in the format `style`, become the structured calls that verifiers expects.
"""

import asyncio
import json
import queue
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers as vf
from openai.types.chat import ChatCompletion

from envhub.envs.core import Env, Info
from envhub.envs.parsers import parse
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import ListTasks, TaskSet
from envhub.errors import ConfigError, EnvError

DEADLINE_S = 300.0
LONGEST_REPLY = 262_144


class VerifiersEnv(Env):
    """One of verifiers' environments; a task is a row of its dataset."""

    def __init__(self, name: str, *, style: str = "hermes", **options: Any) -> None:
        """Load the environment. Raises ValueError if it refuses its options."""
        try:
            self.env = vf.load_environment(name, **options)
        except (TypeError, ValueError, ImportError, AttributeError) as error:
            raise ValueError(f"load_environment({name!r}): {type(error).__name__}: {error}") from error
        self._style = style
        self._rows = rows_of(self.env)
        self._rollout: _Rollout | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin the task, or a row drawn from the seed."""
        super().reset(seed=seed)
        self.close()
        task = self.task_of(options)
        row = dict(task) if task else self._rows[int(self.np_random.integers(len(self._rows)))]
        self._rollout = _Rollout(self.env, row, self._style)
        return self._rollout.begin(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Answer as the model; the last answer brings the rubric's reward."""
        if self._rollout is None or self._rollout.over:
            return "The episode is over.", 0.0, True, False, {"illegal": True}
        clean = action[-LONGEST_REPLY:].encode("utf-8", "replace").decode()
        observation = self._rollout.answer(clean)
        if not self._rollout.over:
            return observation, 0.0, False, False, {}
        reward, parts = self._rollout.reward, self._rollout.parts
        return observation, reward, True, False, {"success": reward >= 1.0, "reward_parts": parts}

    def close(self) -> None:
        """Abandon the rollout in progress."""
        if self._rollout is not None:
            self._rollout.abandon()
            self._rollout = None


class _Abandoned(BaseException):
    """Ends a rollout that nobody plays on; verifiers catches no BaseException."""


class _Rollout:
    """verifiers' own rollout, in a thread, with a model that is played from outside."""

    def __init__(self, env: Any, row: Mapping[str, Any], style: str) -> None:
        self._env, self._row, self._style = env, row, style
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._seen = 0
        self.over, self.reward = False, 0.0
        self.parts: dict[str, float] = {}

    def begin(self) -> str:
        """Start; the first question."""
        threading.Thread(target=self._run, daemon=True).start()
        return self._next()

    def answer(self, text: str) -> str:
        """Answer the question; the next one, or "" at the end."""
        self._answers.put(text)
        return self._next()

    def abandon(self) -> None:
        """End it."""
        if not self.over:
            self._answers.put(None)

    def _next(self) -> str:
        try:
            kind, value = self._asked.get(timeout=DEADLINE_S)
        except queue.Empty:
            raise EnvError(f"verifiers took over {DEADLINE_S:g} s", mend="mend the environment") from None
        if kind == "failed":
            self.over = True
            raise EnvError(f"verifiers raised {type(value).__name__}: {value}", mend="mend the environment")
        if kind == "over":
            self.over = True
            return ""
        return str(value)

    def _run(self) -> None:
        try:
            asyncio.run(self._play())
            self._asked.put(("over", None))
        except _Abandoned:
            return
        except BaseException as error:
            self._asked.put(("failed", error))

    async def _play(self) -> None:
        row = self._row
        prompt = self._env.format_prompt(row["prompt"]) if isinstance(row["prompt"], str) else list(row["prompt"])
        known = {"answer": row.get("answer", ""), "task": row.get("task", "default"), "info": dict(row.get("info") or {})}
        tools = getattr(self._env, "oai_tools", None)
        if tools and "oai_tools" not in known["info"]:
            known["info"]["oai_tools"] = tools
        completion, state = await self._env.rollout(client=_Client(self), model="envhub", prompt=prompt, **known)
        scores = await self._env.rubric.score_rollout(prompt=prompt, completion=completion, state=state, **known)
        self.reward = float(scores.reward)
        self.parts = {str(k): float(v) for k, v in dict(scores.metrics or {}).items()}

    async def create(self, *, messages: Sequence[Mapping[str, Any]], **_: Any) -> ChatCompletion:
        """What verifiers takes for a model: the new messages are the observation."""
        new, self._seen = messages[self._seen :], len(messages) + 1
        self._asked.put(("asked", "\n\n".join(filter(None, map(_shown, new)))))
        answer = await asyncio.get_running_loop().run_in_executor(None, self._answers.get)
        if answer is None:
            raise _Abandoned
        return completion_of(answer, self._style)


class _Client:
    """As much of AsyncOpenAI as a rollout touches."""

    def __init__(self, rollout: _Rollout) -> None:
        self.chat = self
        self.completions = rollout
        self.base_url = "http://envhub.invalid"


def _shown(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)
    return "" if message.get("role") == "assistant" else text


def completion_of(answer: str, style: str) -> ChatCompletion:
    """A model's answer as OpenAI's client gives it; calls in it become structured ones."""
    found = parse(answer, style)
    calls = [
        {
            "id": call.id or f"call_{uuid.uuid4().hex[:12]}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
        }
        for call in found.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": found.text if calls else answer}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message, "logprobs": None}
    return ChatCompletion.model_validate(
        {"id": "envhub", "object": "chat.completion", "created": 0, "model": "envhub", "choices": [choice]}
    )


def rows_of(env: Any) -> list[dict[str, Any]]:
    """The rows of an environment's dataset, as plain data."""
    data = env.get_eval_dataset() if env.eval_dataset is not None and env.dataset is None else env.get_dataset()
    return [{key: row[key] for key in ("prompt", "answer", "task", "info") if row.get(key) is not None} for row in data]


def spec(rest: str) -> EnvSpec:
    """The spec of an installed environment module. Raises ConfigError if there is none."""
    try:
        loaded = vf.load_environment(rest)
    except Exception as error:  # foreign code enters here
        raise ConfigError(f"verifiers cannot load {rest!r}: {type(error).__name__}: {error}", mend="install it") from error

    def tasks(**_: Any) -> TaskSet:
        splits = {}
        if loaded.dataset is not None:
            splits["train"] = rows_of(loaded)
        if loaded.eval_dataset is not None:
            keys = ("prompt", "answer", "task", "info")
            splits["test"] = [{k: row[k] for k in keys if row.get(k) is not None} for row in loaded.get_eval_dataset()]
        return ListTasks(splits)

    limit = int(getattr(loaded, "max_turns", -1) or -1)
    return EnvSpec(
        id=f"verifiers:{rest}",
        make=lambda **options: VerifiersEnv(rest, **options),
        summary=f"The verifiers environment {rest}.",
        tasks=tasks,
        max_turns=limit if limit > 0 else 64,
        success_reward=1.0,
        reward_range=(-1e6, 1e6),
        tags=("verifiers",),
        tools=tuple(getattr(loaded, "oai_tools", None) or ()),
    )
