"""Several engines as one: an episode stays where its cache is, an engine serves what it can, and one that is lost is avoided.

New weights reach one engine after another, so that the others go on sampling; every token knows its version.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from envhub.policy.affinity import pick
from envhub.policy.core import Completion, Load, Sampling, TokenEngine
from envhub.policy.throttle import START, Gate, Throttle

UNLIMITED = 2**62


class Served(TokenEngine, Protocol):
    """An engine that runs between two moments."""

    def running(self) -> AbstractAsyncContextManager[object]: ...


E = TypeVar("E", bound=Served)


@dataclass(slots=True)
class _Home:
    """An episode's engine and its place in order of beginning."""

    engine: int
    age: int


class Fleet(Generic[E]):
    """A `TokenEngine` over engines with equal weights. Use it inside `async with fleet.running():`."""

    def __init__(self, engines: Sequence[E], *, adapts: bool = False) -> None:
        """Join engines; with `adapts`, each serves as many episodes as it can serve well, as `adapt` finds out."""
        self.engines = tuple(engines)
        start = START if adapts else UNLIMITED
        self._throttles = [Throttle(start) for _ in self.engines]
        self._gates: list[Gate[asyncio.Future[None]]] = [Gate(start) for _ in self.engines]
        self._seen = [Load() for _ in self.engines]
        self._turns = [0] * len(self.engines)
        self._lost = [0] * len(self.engines)  # turns without an answer since the last answer
        self._homes: dict[str, _Home] = {}
        self._begun = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Fleet[E]"]:
        """Run all engines until the block ends."""
        async with AsyncExitStack() as stack:
            for engine in self.engines:
                await stack.enter_async_context(engine.running())
            yield self

    @property
    def version(self) -> int:
        """The oldest version that an engine holds; while new weights go round, others may be one ahead."""
        return min(engine.version for engine in self.engines)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int) -> Completion:
        """See `TokenEngine.generate`. What an engine raises counts against it, and so does a turn that is given up."""
        number = self._settle(episode)
        self._turns[number] += 1
        answered = False
        try:
            await self._turn(number, episode)
            done = await self.engines[number].generate(prompt_ids, sampling, episode=episode, seed=seed)
            answered = True
            return done
        finally:
            self._turns[number] -= 1
            self._lost[number] = 0 if answered else self._lost[number] + 1

    def release(self, episode: str) -> None:
        """The episode is over."""
        home = self._homes.pop(episode, None)
        if home is not None:
            self._leave(episode, home)

    def load(self) -> Load:
        """Of all engines together."""
        return sum((engine.load() for engine in self.engines), Load())

    def adapt(self) -> int:
        """Look at all engines, let each serve as many episodes as it can, and give the number of all of them."""
        for number, engine in enumerate(self.engines):
            load, gate = engine.load(), self._gates[number]
            limit = self._throttles[number].observe(load.since(self._seen[number]), len(gate))
            self._seen[number] = load
            _open(gate.resize(limit))
        return sum(gate.limit for gate in self._gates)

    def _settle(self, episode: str) -> int:
        """The engine for the episode's next turn: its home, unless that falls behind or does not answer."""
        home = self._homes.get(episode)
        loads = [turns + lost for turns, lost in zip(self._turns, self._lost, strict=True)]
        number = pick(loads, None if home is None else home.engine)
        if home is None:
            self._begun += 1
            self._homes[episode] = _Home(number, self._begun)
        elif home.engine != number:
            self._leave(episode, home)
            home.engine = number
        else:
            return number
        self._gates[number].enter(self._homes[episode].age)
        return number

    async def _turn(self, number: int, episode: str) -> None:
        """Wait until the engine serves the episode."""
        gate, age = self._gates[number], self._homes[episode].age
        if gate.limit >= len(gate):
            return
        passed = asyncio.get_running_loop().create_future()
        if not gate.ask(age, passed):
            await passed

    def _leave(self, episode: str, home: _Home) -> None:
        self.engines[home.engine].release(episode)
        _open(self._gates[home.engine].leave(home.age))


def _open(turns: Sequence["asyncio.Future[None]"]) -> None:
    for passed in turns:
        if not passed.done():
            passed.set_result(None)
