"""Vectors: many environments stepped as one, under Gymnasium's rules of automatic reset, or a few of them by index.

`SyncVector` steps them one after the other, for cheap ones. `AsyncVector` steps them in threads, for those that wait on a
process, a socket or a browser: send actions to some, take what is ready first.

When an episode ends (gymnasium.vector.AutoresetMode):
    NEXT_STEP  the next step of this environment ignores its action and resets it: reward 0, the first observation
    SAME_STEP  it is reset at once; `infos["final_obs"]` and `infos["final_info"]` keep how it ended
    DISABLED   stepping it again is an error; reset it with `options={"reset_mask": mask}`
"""

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envhub.envs.core import Env, Info
from envhub.envs.vector_infos import Infos
from envhub.errors import EnvError

Step = tuple[str, float, bool, bool, Info]


@dataclass(frozen=True, slots=True, eq=False)
class Stepped:
    """What some environments answered, in the order of `indices`; infos are the environments' own."""

    indices: tuple[int, ...]
    observations: tuple[str, ...]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: tuple[Info, ...]


class _Vector(gymnasium.vector.VectorEnv[tuple[str, ...], Sequence[str], NDArray[Any]], ABC):
    """What both vectors share: the environments, which of them have ended, and the rules of reset."""

    def __init__(self, makers: Sequence[Callable[[], Env]], *, autoreset: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
        """Build one environment per maker."""
        self.envs = [make() for make in makers]
        self.num_envs = len(self.envs)
        self.autoreset = AutoresetMode(autoreset)
        self.metadata = {"autoreset_mode": self.autoreset}
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._ended = [False] * self.num_envs
        self._observations = [""] * self.num_envs

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Reset all, or those of `options["reset_mask"]` (bool, [num_envs]). An int seeds them seed, seed + 1, ..."""
        seeds = (
            [None if seed is None else seed + i for i in range(self.num_envs)]
            if seed is None or isinstance(seed, int)
            else seed
        )
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        mask = None if options is None else options.get("reset_mask")
        rest = None if options is None else {k: v for k, v in options.items() if k != "reset_mask"} or None
        chosen = range(self.num_envs) if mask is None else np.flatnonzero(_checked(mask, self.num_envs)).tolist()
        given = self._map([(i, self._reset_one, (seeds[i], rest)) for i in chosen])
        infos: list[Info] = [{}] * self.num_envs
        for index, (observation, info) in zip(chosen, given, strict=True):
            self._observations[index], infos[index] = observation, info
            self._ended[index] = False
        return tuple(self._observations), Infos(infos)

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all, as Gymnasium's vectors do."""
        if len(actions) != self.num_envs:
            raise ValueError(f"{len(actions)} actions for {self.num_envs} environments")
        observations, rewards, terminated, truncated, infos = zip(*self._step_all(actions), strict=True)
        self._observations = list(observations)
        return observations, np.array(rewards, np.float64), np.array(terminated), np.array(truncated), Infos(infos)

    def _step_all(self, actions: Sequence[str]) -> list[Step]:
        return self._map([(i, self._step_one, (action,)) for i, action in enumerate(actions)])

    @abstractmethod
    def _map(self, calls: Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        """The results of calls, each for one environment."""

    def _reset_one(self, index: int, seed: int | None, options: dict[str, Any] | None) -> tuple[str, Info]:
        return self.envs[index].reset(seed=seed, options=options)

    def _step_one(self, index: int, action: str) -> Step:
        if self._ended[index]:
            if self.autoreset is AutoresetMode.DISABLED:
                raise EnvError(f"environment {index} has ended", mend='reset it with options={"reset_mask": mask}')
            self._ended[index] = False
            observation, info = self.envs[index].reset()
            return observation, 0.0, False, False, info
        observation, reward, terminated, truncated, info = self.envs[index].step(action)
        step = observation, float(reward), bool(terminated), bool(truncated), info
        return self._ended_with(index, step) if terminated or truncated else step

    def _ended_with(self, index: int, step: Step) -> Step:
        """The last step of an episode, as the rule of reset has it."""
        observation, reward, terminated, truncated, info = step
        if self.autoreset is AutoresetMode.SAME_STEP:
            final = {"final_obs": observation, "final_info": dict(info)}
            observation, info = self.envs[index].reset()
            return observation, reward, terminated, truncated, info | final
        self._ended[index] = True
        return step

    def close(self, **kwargs: Any) -> None:
        """Close every environment. Safe to call twice."""
        for env in self.envs:
            env.close()


class SyncVector(_Vector):
    """Environments stepped one after the other in the caller's thread."""

    def _map(self, calls: Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        return [function(index, *args) for index, function, args in calls]

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all, as Gymnasium's vectors do."""
        if len(actions) != self.num_envs:
            raise ValueError(f"{len(actions)} actions for {self.num_envs} environments")
        observations, rewards, terminated, truncated, infos = zip(*self._steps(actions), strict=True)
        self._observations = list(observations)
        ends, cuts = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        return observations, np.array(rewards, np.float64), ends, cuts, Infos(infos)

    def _steps(self, actions: Sequence[str]) -> list[Step]:
        if any(self._ended):
            return [self._step_one(index, action) for index, action in enumerate(actions)]
        steps: list[Step] = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]  # type: ignore[misc]
        for index, step in enumerate(steps):  # a call more an environment would show beside cheap ones
            if step[2] or step[3]:
                steps[index] = self._ended_with(index, step)
        return steps

    def step_some(self, indices: Sequence[int], actions: Sequence[str]) -> Stepped:
        """Step only these environments."""
        return _stepped(tuple(indices), [self._step_one(i, action) for i, action in zip(indices, actions, strict=True)])


class AsyncVector(_Vector):
    """Environments stepped at once, each in one thread at a time. `send` and `recv` let fast ones go ahead of slow ones."""

    def __init__(
        self,
        makers: Sequence[Callable[[], Env]],
        *,
        autoreset: AutoresetMode = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        deadline_s: float = 600.0,
    ) -> None:
        """Build one environment per maker; `threads` step at once, by default all; `deadline_s` bounds every wait."""
        super().__init__(makers, autoreset=autoreset)
        self._threads = ThreadPoolExecutor(threads or self.num_envs, thread_name_prefix="vector")
        self._ready: queue.SimpleQueue[tuple[int, Step | BaseException]] = queue.SimpleQueue()
        self._busy: set[int] = set()
        self._deadline_s = deadline_s

    def _map(self, calls: Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        if self._busy:
            raise EnvError(f"environments {sorted(self._busy)} are still stepping", mend="take their steps with recv")
        futures = [self._threads.submit(function, index, *args) for index, function, args in calls]
        return [future.result(self._deadline_s) for future in futures]

    def send(self, indices: Sequence[int], actions: Sequence[str]) -> None:
        """Start stepping these environments. Raises EnvError if one of them is stepping already."""
        again = self._busy & set(indices)
        if again or len(set(indices)) < len(indices):
            raise EnvError(f"environments {sorted(again) or indices} are stepping already", mend="take their steps with recv")
        for index, action in zip(indices, actions, strict=True):
            self._busy.add(index)
            self._threads.submit(self._run, index, action)

    def recv(self, at_least: int = 1) -> Stepped:
        """What is ready, waiting for `at_least` environments; fewer only if fewer are stepping.

        Raises:
            EnvError: an environment raised (the others' steps are kept for the next call), or nothing came in time.
        """
        wanted = min(at_least, len(self._busy))
        taken: list[tuple[int, Step]] = []
        while len(taken) < wanted or (taken and not self._ready.empty()):
            try:
                index, step = self._ready.get(timeout=self._deadline_s)
            except queue.Empty:
                raise EnvError(f"{sorted(self._busy)} took over {self._deadline_s:g} s", mend="mend the environment") from None
            self._busy.discard(index)
            if isinstance(step, BaseException):
                for done in taken:
                    self._busy.add(done[0])
                    self._ready.put(done)
                raise EnvError(
                    f"environment {index} raised {type(step).__name__}: {step}", mend="mend the environment"
                ) from step
            taken.append((index, step))
        return _stepped(tuple(index for index, _ in taken), [step for _, step in taken])

    def _run(self, index: int, action: str) -> None:
        try:
            self._ready.put((index, self._step_one(index, action)))
        except BaseException as error:
            self._ready.put((index, error))

    def close(self, **kwargs: Any) -> None:
        """Wait for what is stepping, then close every environment."""
        self._threads.shutdown()
        super().close()


def _stepped(indices: tuple[int, ...], steps: Sequence[Step]) -> Stepped:
    observations, rewards, terminated, truncated, infos = zip(*steps, strict=True) if steps else ((), (), (), (), ())
    return Stepped(
        indices,
        observations,
        np.array(rewards, np.float64),
        np.array(terminated, bool),
        np.array(truncated, bool),
        tuple(infos),
    )


def _checked(mask: Any, length: int) -> NDArray[np.bool_]:
    if not isinstance(mask, np.ndarray) or mask.shape != (length,) or mask.dtype != np.bool_ or not mask.any():
        raise ValueError(f"reset_mask must be a bool array [{length}] with at least one True, got {mask!r}")
    return mask
