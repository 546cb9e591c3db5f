"""The parent's side of an environment process: environments and task sets whose verbs are answered over a pipe."""

import atexit
import contextlib
import copy
import itertools
import subprocess
import sysconfig
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from typing import Any, Self

from envhub.envs.core import Env, Info, StateLevel
from envhub.envs.facts import spec_from
from envhub.envs.runtime.wire import pack_frame, read_frame
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import Task, check_split
from envhub.errors import ConfigError, EnvError

START_DEADLINE_S = 120.0
VERB_DEADLINE_S = 600.0
_hosts: dict[tuple[str, ...], "EnvProcess"] = {}
_lock = threading.Lock()


class EnvProcess:
    """One child process that hosts many environments of one spec. A dead child is an EnvError in every waiting verb."""

    def __init__(self, command: Sequence[str], *, name: str) -> None:
        """Start the child. Raises ConfigError if it does not come up with a spec."""
        self._name = name
        self._numbers, self._sessions = itertools.count(1), itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {0: Future()}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1)
        weakref.finalize(self, _end, self._process)
        self._listener = threading.Thread(target=_listen, args=(self._process, self._waiting, name), daemon=True)
        self._listener.start()
        try:
            self.facts: dict[str, Any] = _wait(self._waiting[0], START_DEADLINE_S, f"{name}: start")
        except (EnvError, ValueError, TypeError) as error:
            self.close()
            what = error.what if isinstance(error, EnvError) else str(error)
            raise ConfigError(f"{name} does not start: {what}", mend="mend the package") from error

    @property
    def alive(self) -> bool:
        """Whether the child runs."""
        return self._process.poll() is None

    def session(self) -> int:
        """A number for a new environment or task set."""
        return next(self._sessions)

    def call(self, session: int, verb: str, argument: Any = None, *, deadline_s: float = VERB_DEADLINE_S) -> Any:
        """Ask and wait. Raises EnvError when the child is dead, late, or says that the verb raised."""
        number, answer = next(self._numbers), Future[Any]()
        self._waiting[number] = answer
        try:
            frame = pack_frame([[number, session, verb, argument]])
            with self._lock:
                assert self._process.stdin is not None
                self._process.stdin.write(frame)
                self._process.stdin.flush()
            if not self.alive:
                _fail(self._waiting, self._name)
            return _wait(answer, deadline_s, f"{self._name}: {verb}")
        except OSError as error:
            raise EnvError(f"{self._name}: the environment's process died", mend="see its log above") from error
        except ValueError as error:
            raise EnvError(f"{self._name}: {verb} {error}", mend="send plain values") from error
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        """End the child. Safe to call twice."""
        _end(self._process)
        self._listener.join(2)


def shared(command: Sequence[str], *, name: str) -> EnvProcess:
    """The running process of a command; started if there is none, and ended with this process."""
    with _lock:
        key = tuple(command)
        if key not in _hosts or not _hosts[key].alive:
            _hosts[key] = EnvProcess(command, name=name)
        return _hosts[key]


def child_command(python: str, target: str) -> tuple[str, ...]:
    """The command that hosts `target` ("module:spec") under a Python of this one's version.

    What that Python's own packages do not hold (EnvHub among them) is taken from this one's, last on its path.
    """
    host = sysconfig.get_paths()["purelib"]
    program = f"import site; site.addsitedir({host!r}); from envhub.envs.runtime.child import main; main()"
    return (python, "-P", "-c", program, target)


def spec_of(start: Callable[[], EnvProcess]) -> EnvSpec:
    """The spec that a child describes; its environments and tasks live in the child, which is started anew when it died."""
    facts = start().facts
    return spec_from(
        facts,
        make=lambda **options: ProcessEnv(start(), options),
        tasks=lambda **options: ProcessTasks(start(), options),
        solver=lambda env: env.solve(),
        default_options=facts["default_options"],
    )


class ProcessEnv(Env):
    """An environment that lives in a child process."""

    def __init__(self, process: EnvProcess, options: Mapping[str, Any]) -> None:
        """Build it there. Raises ValueError if it refuses the options."""
        self._process, self._session = process, process.session()
        self._closed = False
        try:
            level = StateLevel(process.call(self._session, "make", dict(options)))
            self.state_level = level  # type: ignore[misc]  # as the environment there promises
        except EnvError as error:
            if error.what.startswith(("TypeError", "ValueError")):
                raise ValueError(error.what) from error
            raise

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        observation, info = self._process.call(self._session, "reset", [seed, options])
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self._process.call(self._session, "step", action)
        return observation, reward, terminated, truncated, info

    def legal_actions(self) -> tuple[str, ...]:
        return tuple(self._process.call(self._session, "legal_actions"))

    def snapshot(self) -> Any:
        """The number of a snapshot that is kept there until this environment is closed."""
        return self._process.call(self._session, "snapshot")

    def restore(self, snapshot: Any) -> None:
        self._process.call(self._session, "restore", snapshot)

    def fork(self) -> Self:
        twin = copy.copy(self)
        twin._session = self._process.session()
        self._process.call(self._session, "fork", twin._session)
        return twin

    def solve(self) -> str:
        """What the environment's own solver plays next."""
        return str(self._process.call(self._session, "solve"))

    def close(self) -> None:
        """Close it there. Safe to call twice, and when the process is dead."""
        if not self._closed:
            self._closed = True
            if self._process.alive:
                self._process.call(self._session, "close")


class ProcessTasks:
    """A task set that lives in a child process."""

    def __init__(self, process: EnvProcess, options: Mapping[str, Any]) -> None:
        """Build it there."""
        self._process, self._session = process, process.session()
        self._sizes: dict[str, int | None] = process.call(self._session, "tasks", dict(options))

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self._sizes)

    def size(self, split: str) -> int | None:
        """How many tasks the split has; None if endless."""
        check_split(split, self.splits)
        return self._sizes[split]

    def get(self, split: str, index: int) -> Task:
        """The task at a place."""
        return Task(**self._process.call(self._session, "task", [split, index]))


def _listen(process: subprocess.Popen[bytes], waiting: dict[int, Future[Any]], name: str) -> None:
    """Hand every answer to the verb that waits for it; when the child ends, to all that wait."""
    assert process.stdout is not None
    try:
        while (frame := read_frame(process.stdout)) is not None:
            for number, good, value in frame:
                future = waiting.get(number)
                if future is None:
                    continue  # its verb gave up
                if good:
                    future.set_result(value)
                else:
                    kind, what, mend = map(str, value)
                    future.set_exception(EnvError(what if kind == "EnvError" else f"{kind}: {what}", mend=mend))
    except (ValueError, TypeError, OSError):
        process.kill()  # it speaks another language
    process.wait()
    process.stdout.close()
    _fail(waiting, name)


def _fail(waiting: dict[int, Future[Any]], name: str) -> None:
    for future in list(waiting.values()):
        if not future.done():
            future.set_exception(EnvError(f"{name}: the environment's process died", mend="see its log above"))


def _wait(answer: Future[Any], deadline_s: float, what: str) -> Any:
    try:
        return answer.result(deadline_s)
    except Late as error:
        raise EnvError(f"{what} took over {deadline_s:g} s", mend="mend the environment") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@atexit.register
def _end_all() -> None:
    for host in _hosts.values():
        host.close()
