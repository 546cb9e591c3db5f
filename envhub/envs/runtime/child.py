"""The environment process: builds environments when asked and answers their verbs. Started by `process.py` and the server only.

Its one argument is a target, "module:spec" or "module:function(argument)". Frames of requests come on standard input, frames
of answers go to standard output; what environments print goes to standard error. A request is [id, session, verb, argument],
an answer [id, True, value] or [id, False, [kind, what, mend]]; the answer with id 0 is the spec, or why there is none.

Environments that are `inline` are served by the main thread, a whole frame at a time; others each by a thread of their own.
"""

import contextlib
import ctypes
import gc
import io
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import IO, Any

from envhub.envs.core import Env, StateLevel
from envhub.envs.facts import facts_of
from envhub.envs.runtime.wire import pack_frame, read_frame
from envhub.envs.spec import EnvSpec
from envhub.envs.sync_face import SyncFace
from envhub.envs.tasks import TaskSet
from envhub.errors import EnvHubError

Request = Sequence[Any]
MAX_SNAPSHOTS = 64


class ContractError(Exception):
    """An environment answered something that is no answer."""


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


class Unavailable(Exception):
    """What was asked cannot be had here; the environment is not to blame."""


class Session:
    """One environment, or one task set."""

    def __init__(self, spec: EnvSpec, snapshots: dict[int, Any]) -> None:
        """Hold nothing yet. `snapshots` are those of all sessions, by number, so that one may restore another's."""
        self.spec, self.snapshots = spec, snapshots
        self.env: Env | None = None
        self.tasks: TaskSet | None = None
        self.own: list[int] = []
        self.requests: queue.SimpleQueue[Request] | None = None  # for environments with a thread

    def do(self, verb: str, argument: Any) -> Any:
        """Do one verb. Raises whatever the environment raises."""
        if verb == "step":
            return checked_step(self._env().step(argument))
        if verb not in VERBS:
            raise ValueError(f"unknown verb {verb!r}")
        return VERBS[verb](self, argument)

    def make(self, options: dict[str, Any]) -> str:
        """Build the environment; gives its state level."""
        made = self.spec.make(**options)
        self.env = made if isinstance(made, Env) else SyncFace(made)
        return self.env.state_level

    def reset(self, argument: Sequence[Any]) -> list[Any]:
        """Reset with [seed, options]."""
        return checked_reset(self._env().reset(seed=argument[0], options=argument[1]))

    def open_tasks(self, options: dict[str, Any]) -> dict[str, int | None]:
        """Build the task set; gives its splits' sizes."""
        assert self.spec.tasks is not None
        self.tasks = self.spec.tasks(**options)
        return {split: self.tasks.size(split) for split in self.tasks.splits}

    def task(self, argument: Sequence[Any]) -> dict[str, Any]:
        """The task at [split, place]."""
        assert self.tasks is not None
        return asdict(self.tasks.get(*argument))

    def legal_actions(self, _: None) -> list[str]:
        """What a random player draws from."""
        return list(self._env().legal_actions())

    def solve(self, _: None) -> str:
        """What the spec's solver does next."""
        assert self.spec.solver is not None
        return self.spec.solver(self._env())

    def restore(self, number: int) -> None:
        """Go back to a snapshot."""
        self._env().restore(self.snapshots[number])

    def close(self, _: None) -> None:
        """Close the environment and drop its snapshots."""
        env, self.env = self.env, None
        for number in self.own:
            self.snapshots.pop(number, None)
        if env is not None:
            env.close()

    def fork(self) -> "Session":
        """A second session in the same state."""
        twin = Session(self.spec, self.snapshots)
        twin.env = self._env().fork()
        return twin

    def _env(self) -> Env:
        if self.env is None:
            raise ValueError("the environment is closed, or was never made")
        return self.env

    def snapshot(self, _: None) -> int:
        """Keep the state; gives its number."""
        if self._env().state_level is StateLevel.NONE or len(self.own) >= MAX_SNAPSHOTS:
            raise Unavailable(f"no snapshots here, or over {MAX_SNAPSHOTS} of them")
        number = max(self.snapshots, default=0) + 1
        self.snapshots[number] = self._env().snapshot()
        self.own.append(number)
        return number


VERBS: dict[str, Callable[[Session, Any], Any]] = {
    "make": Session.make,
    "reset": Session.reset,
    "tasks": Session.open_tasks,
    "task": Session.task,
    "legal_actions": Session.legal_actions,
    "solve": Session.solve,
    "snapshot": Session.snapshot,
    "restore": Session.restore,
    "close": Session.close,
}


def checked_step(given: Any) -> list[Any]:
    """A step's answer as it is sent. Raises ContractError if it is none."""
    if not isinstance(given, tuple) or len(given) != 5:
        raise ContractError(f"step gave {type(given).__name__}, not (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = given
    if type(observation) is not str:
        raise ContractError(f"the observation is {type(observation).__name__}, not text")
    if type(reward) is not float:
        reward = _number(reward)
    if reward - reward != 0:
        raise ContractError(f"the reward is {reward}, not finite")
    if not isinstance(info, dict):
        raise ContractError(f"info is {type(info).__name__}, not a dict")
    return [observation, reward, bool(terminated), bool(truncated), info]


def checked_reset(given: Any) -> list[Any]:
    """A reset's answer as it is sent. Raises ContractError if it is none."""
    match given:
        case (str() as observation, dict() as info):
            return [observation, info]
    raise ContractError(f"reset gave {type(given).__name__}, not (observation, info)")


def _number(reward: Any) -> float:
    try:
        value = float(reward)
    except (TypeError, ValueError) as error:
        raise ContractError(f"the reward is {reward!r:.40}, not a number") from error
    return value if math.isfinite(value) else math.nan


class Host:
    """All sessions of this process."""

    def __init__(self, spec: EnvSpec, write: Callable[[bytes], None]) -> None:
        """Answer through `write`, which threads share."""
        self._spec, self._write = spec, write
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._snapshots: dict[int, Any] = {}

    def take(self, frame: Sequence[Request]) -> None:
        """Answer a frame of requests; those of environments with threads are answered later."""
        answers = []
        for request in frame:
            session = self._sessions.get(request[1])
            if session is None:
                session = self._sessions[request[1]] = Session(self._spec, self._snapshots)
            if self._spec.inline:
                answers.append(self._answer(session, request))
            else:
                self._hand_over(session, request)
        if answers:
            self.send(answers)

    def send(self, answers: Sequence[Any]) -> None:
        """Send answers; one that cannot be sent becomes an error, and the others go."""
        try:
            frame = pack_frame(answers)
        except ValueError:
            if len(answers) > 1:
                for answer in answers:
                    self.send([answer])
                return
            frame = pack_frame(
                [[answers[0][0], False, ["ContractError", "the answer holds no plain values, or is too large", ""]]]
            )
        with self._lock:
            self._write(frame)

    def _answer(self, session: Session, request: Request) -> list[Any]:
        number, name, verb, argument = request
        try:
            if verb == "fork":
                self._sessions[argument] = session.fork()
                return [number, True, None]
            value = session.do(verb, argument)
            if verb == "close":
                self._sessions.pop(name, None)
            return [number, True, value]
        except EnvHubError as error:
            return [number, False, [type(error).__name__, error.what, error.mend]]
        except Exception as error:  # foreign code enters here
            return [number, False, [type(error).__name__, str(error)[:2000], "mend the environment"]]

    def _hand_over(self, session: Session, request: Request) -> None:
        if session.requests is None:
            session.requests = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(session,), daemon=True).start()
        session.requests.put(request)

    def _serve(self, session: Session) -> None:
        assert session.requests is not None
        while True:
            request = session.requests.get()
            self.send([self._answer(session, request)])
            if request[2] == "close":
                return


def serve(target: str, requests: IO[bytes], write: Callable[[bytes], None]) -> None:
    """Answer requests until the stream ends."""
    try:
        spec = load_target(target)
    except BaseException as error:  # whatever an import may raise, SystemExit included
        what, mend = (error.what, error.mend) if isinstance(error, EnvHubError) else (str(error), "mend the package")
        write(pack_frame([[0, False, [type(error).__name__, what, mend]]]))
        return
    write(pack_frame([[0, True, facts_of(spec)]]))
    host = Host(spec, write)
    while (frame := read_frame(requests)) is not None:
        host.take(frame)


def die_with_parent() -> None:
    """Have Linux kill this process when its parent ends; elsewhere the end of the pipe does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def calm_collector() -> None:
    """Collect cycles seldom: a process with thousands of live sessions would look through them all again and again."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def write_all(descriptor: int) -> Callable[[bytes], None]:
    """A function that writes all of some bytes."""

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    return write


class _Heard(io.TextIOBase):
    """Where environments print to: the parent's stderr, if anybody listens there; if nobody does, a step is the same."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(2, text.encode("utf-8", "backslashreplace"))
        return len(text)


def main() -> None:
    """Serve the target that the command line names, on standard input and output."""
    die_with_parent()
    calm_collector()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error, and nothing else may go where answers go
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = sys.stderr = _Heard()
    with contextlib.suppress(BrokenPipeError):  # the parent has gone
        serve(sys.argv[1], sys.stdin.buffer, write_all(answers))
