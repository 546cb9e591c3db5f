"""The environment process: builds environments when asked and answers their verbs. Started by `process.py` only.

Its one argument is "module:spec" or "module:function(argument)". Requests come on
standard input, answers go to a copy of standard output; what the environments print goes to standard error.

A request is {"id", "session", "verb", "args"}; an answer {"id", "ok"} or {"id", "error": [kind, what, mend]}. Verbs of one
session run in order on a thread of its own.
"""

import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any, BinaryIO

from envhub.envs.core import Env
from envhub.envs.runtime.wire import read_frame, write_frame
from envhub.envs.spec import EnvSpec
from envhub.envs.sync_face import SyncFace
from envhub.envs.tasks import TaskSet
from envhub.errors import EnvHubError

Request = dict[str, Any]


def load_target(target: str) -> EnvSpec:
    """The spec behind "module:name", or what "module:name(argument)" gives."""
    name, _, argument = target.partition("(")
    module, _, attribute = name.partition(":")
    found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    spec = found(argument.removesuffix(")")) if "(" in target else found
    if not isinstance(spec, EnvSpec):
        raise TypeError(f"{target} is no EnvSpec")
    return spec


def describe(spec: EnvSpec) -> dict[str, Any]:
    """What a spec says of itself, in plain values."""
    facts = {
        name: getattr(spec, name)
        for name in ("id", "summary", "instructions", "max_turns", "success_reward", "reward_kind", "isolation", "players")
    }
    return facts | {
        "tags": list(spec.tags),
        "reward_range": list(spec.reward_range),
        "baselines": dict(spec.baselines),
        "default_options": dict(spec.default_options),
        "tools": [dict(tool) for tool in spec.tools],
        "has_tasks": spec.tasks is not None,
        "has_solver": spec.solver is not None,
    }


class Session:
    """One environment, or one task set, and the thread that serves it."""

    def __init__(self, spec: EnvSpec, send: Callable[[Any], None]) -> None:
        """Serve requests until `close` is among them."""
        self._spec, self._send = spec, send
        self._env: Env | None = None
        self._tasks: TaskSet | None = None
        self.requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            request = self.requests.get()
            self._send(_answer(request, self._do))
            if request["verb"] == "close":
                return

    def _do(self, verb: str, args: Mapping[str, Any]) -> Any:
        match verb:
            case "make":
                made = self._spec.make(**args["options"])
                self._env = made if isinstance(made, Env) else SyncFace(made)
                return None
            case "tasks":
                assert self._spec.tasks is not None
                self._tasks = self._spec.tasks(**args["options"])
                return {split: self._tasks.size(split) for split in self._tasks.splits}
            case "task":
                assert self._tasks is not None
                return asdict(self._tasks.get(args["split"], args["index"]))
            case "close" if self._env is None:
                return None
        assert self._env is not None, f"no environment for {verb!r}"
        env = self._env
        match verb:
            case "reset":
                return list(env.reset(seed=args["seed"], options=args["options"]))
            case "step":
                return _plain(env.step(args["action"]))
            case "legal_actions":
                return list(env.legal_actions())
            case "solve":
                assert self._spec.solver is not None
                return self._spec.solver(env)
            case "close":
                return env.close()
        raise ValueError(f"unknown verb {verb!r}")


def _plain(step: tuple[Any, Any, Any, Any, Any]) -> list[Any]:
    observation, reward, terminated, truncated, info = step
    return [observation, float(reward), bool(terminated), bool(truncated), info]


def _answer(request: Request, do: Callable[[str, Mapping[str, Any]], Any]) -> dict[str, Any]:
    try:
        return {"id": request["id"], "ok": do(request["verb"], request["args"])}
    except EnvHubError as error:
        return {"id": request["id"], "error": [type(error).__name__, error.what, error.mend]}
    except Exception as error:  # foreign code enters here
        return {"id": request["id"], "error": [type(error).__name__, str(error), "mend the environment"]}


def serve(target: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the stream ends."""
    lock = threading.Lock()

    def send(message: Any) -> None:
        with lock:
            try:
                write_frame(answers, message)
            except ValueError as error:
                write_frame(answers, {"id": message["id"], "error": ["EnvError", str(error), "return plain values"]})

    try:
        spec = load_target(target)
    except BaseException as error:  # whatever an import may raise, SystemExit included
        send({"id": 0, "error": [type(error).__name__, str(error), "mend the package"]})
        return
    send({"id": 0, "ok": describe(spec)})
    sessions: dict[int, Session] = {}
    while (request := read_frame(requests)) is not None:
        number = request["session"]
        if number not in sessions:
            sessions[number] = Session(spec, send)
        sessions[number].requests.put(request)
        if request["verb"] == "close":
            del sessions[number]


def main() -> None:
    """Serve the target that the command line names."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin.buffer, out)
