"""Rules of form: what an environment's answers are made of, whatever it is asked."""

import json
import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env

from envhub.envs.check.subject import EPISODES, TURNS, Failed, Skipped, Step, Subject, anything, begin

HOSTILE = (
    "", " \n\t", "\0", "a" * 1_000_000, "\ud800", "\x1b[2J\x07\x7f", "<|im_end|><|im_start|>system\n", "</tool_call>",
    "\uff11\u0661", "9" * 5000, "-1", "[" * 5000, '{"a": ' * 500, "\u202e\u2066", "'; DROP TABLE x; --", "../../etc/passwd",
    "nan", "__import__('os')", "r\u0131ght \u017fouth R\u0130GHT", " " * 20_000 + "x",
)  # fmt: skip
MAX_OBSERVATION = 1 << 20


def gymnasium(subject: Subject) -> None:
    """Gymnasium's own check_env passes"""
    env = subject.make()
    try:
        check_env(env, skip_render_check=True, skip_close_check=True)
    finally:
        env.close()


def answers(subject: Subject) -> None:
    """observations are text that can be encoded, rewards finite, ends booleans, infos plain, true to their keys and new"""
    for seed, task in enumerate(subject.tasks(EPISODES)):
        env, chance = subject.make(), random.Random(seed)
        told: list[tuple[dict[str, Any], str]] = []
        try:
            step = begin(env, task, seed)
            for _ in range(TURNS):
                _well_formed(subject, step)
                told.append((step.info, json.dumps(step.info)))
                if step.over:
                    break
                step = Step(*env.step(anything(env, chance)))
        finally:
            env.close()
        if any(json.dumps(info) != text for info, text in told):
            raise Failed("an info given earlier was changed later: give a new dict at every step")


def hostile(subject: Subject) -> None:
    """empty, huge, NUL, surrogate, control and fake special token actions are answered in an observation"""
    (task,) = subject.tasks(1)
    for number, action in enumerate(HOSTILE):
        env = subject.make()
        try:
            begin(env, task, 1)
            try:
                step = Step(*env.step(action))
            except Exception as error:
                raise Failed(f"action {number} ({action[:20]!r}...) raises {type(error).__name__}: {error}") from error
            _well_formed(subject, step)
            if step.info.get("success"):
                raise Failed(f"action {number} ({action[:20]!r}...) solves the task")
        finally:
            env.close()


def tools(subject: Subject) -> None:
    """declared tools have distinct names, descriptions and JSON Schemas of objects"""
    if not subject.spec.tools:
        raise Skipped("it declares no tools")
    names = []
    for tool in subject.spec.tools:
        function = tool.get("function", {})
        names.append(function.get("name"))
        parameters = function.get("parameters", {})
        if not function.get("description") or parameters.get("type") != "object" or "properties" not in parameters:
            raise Failed(f"tool {names[-1]!r} lacks a description, or parameters that are an object with properties")
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise Failed(f"tool names {names}")


def _well_formed(subject: Subject, step: Step) -> None:
    if not isinstance(step.observation, str):
        raise Failed(f"an observation is {type(step.observation).__name__}, not text")
    if len(step.observation) > MAX_OBSERVATION:
        raise Failed(f"an observation has {len(step.observation):,} characters")
    _encodable(step.observation)
    _finite(step.reward, "the reward")
    for name, value in (("terminated", step.terminated), ("truncated", step.truncated)):
        if not isinstance(value, (bool, np.bool_)):
            raise Failed(f"{name} is {value!r}, not a bool")
    if not isinstance(step.info, dict) or not all(isinstance(key, str) for key in step.info):
        raise Failed("info is no dict with text keys")
    try:
        json.dumps(step.info, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Failed(f"info is not plain, so it cannot be sent or stored: {error}") from error
    _known_keys(subject, step.info)


def _known_keys(subject: Subject, info: Mapping[str, Any]) -> None:
    for key, kind in (("success", bool), ("illegal", bool), ("anchor", str), ("reward_parts", dict), ("player", int)):
        if key in info and not isinstance(info[key], kind):
            raise Failed(f"info[{key!r}] is {info[key]!r}, not {kind.__name__}")
    for name, value in info.get("reward_parts", {}).items():
        _finite(value, f"reward part {name!r}")
    players = subject.spec.players
    if players > 1 and ("player" not in info or not 0 <= info["player"] < players):
        raise Failed(f'info["player"] is {info.get("player")!r} of {players}')
    if "rewards" in info and len(info["rewards"]) != players:
        raise Failed(f'info["rewards"] has {len(info["rewards"])} entries for {players} players')


def _encodable(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Failed(f"an observation holds a lone surrogate: {error}") from error


def _finite(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not math.isfinite(value):
        raise Failed(f"{what} is {value!r}, not a finite number")
