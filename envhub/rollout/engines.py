"""Engines in a simulation: many rows at once, a cache of limited size, prompts that have to be computed, pauses to publish.

A step makes one token for every row and takes `step_s + row_s * rows`, so what a row is owed is counted in steps: rows that
begin together end in order of their tokens, however the number of rows changes on the way.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from pydantic import Field

from envhub.policy.affinity import pick
from envhub.policy.core import Load
from envhub.policy.throttle import START, Gate, Throttle
from envhub.settings import Settings


class EngineModel(Settings):
    """What engines can do, and what turns ask of them. The defaults are of a small model on one accelerator."""

    count: int = Field(default=1, ge=1)
    step_s: float = Field(default=0.01, gt=0)
    """A step with no rows: reading the weights."""
    row_s: float = Field(default=5e-5, ge=0)
    """What every row adds to a step."""
    prefill_s: float = Field(default=2e-5, ge=0)
    """Computing one prompt token that is not in the cache; the rows wait meanwhile."""
    kv_tokens: int = Field(default=400_000, ge=1)
    """Tokens that an engine's cache holds."""
    max_rows: int = Field(default=256, ge=1)
    prompt_tokens: int = Field(default=500, ge=0)
    """Of an episode's first turn."""
    observation_tokens: int = Field(default=200, ge=0)
    """Of every further turn."""
    reply_tokens: int = Field(default=100, ge=1)
    """Sampled in a turn, for an episode of mean duration; they grow with the duration that the episode draws."""
    env_s: float = Field(default=0.5, ge=0)
    """What the environment takes for a step, likewise."""
    affinity: bool = True
    """Whether a turn prefers the engine that has its episode's cache; otherwise it goes to the shortest line."""
    publish_s: float = Field(default=0.0, ge=0)
    """How long an engine stands while it takes new weights; its caches are lost."""
    publish: Literal["together", "rolling"] = "rolling"
    """Whether all engines take new weights at once, or one after another."""


@dataclass(slots=True)
class _Life:
    """An episode: how long its turns are, how many are left, and what it has said and heard so far."""

    name: str
    age: int
    scale: float
    turns: int
    fresh: int
    context: int = 0
    home: int | None = None

    def reply(self, model: EngineModel) -> int:
        return max(1, round(model.reply_tokens * self.scale))


class _Engine:
    """One engine. Its time only moves when it is told something."""

    def __init__(self, model: EngineModel) -> None:
        self._model = model
        self._last = self._until = 0.0  # told last; stands until
        self._steps = 0.0  # made so far
        self._running: dict[str, int] = {}  # tokens of cache that a row holds
        self._due: list[tuple[float, str]] = []  # by steps; may hold rows that are over
        self._waiting: deque[_Life] = deque()
        self._cached: OrderedDict[str, int] = OrderedDict()  # of episodes between turns, least recently used first
        self._held = self._idle = 0  # tokens of cache, of rows and of episodes between turns
        self.computed = self.evicted = self.sampled = 0
        self.standing_s = 0.0
        self.stamp = 0  # changes whenever the next end does

    def load(self) -> Load:
        return Load(len(self._running), len(self._waiting), self.computed, self.evicted)

    def turns(self) -> int:
        return len(self._running) + len(self._waiting)

    def next(self) -> float:
        while self._due and self._due[0][1] not in self._running:
            heapq.heappop(self._due)
        if not self._due:
            return inf
        return max(self._last, self._until) + max(0.0, self._due[0][0] - self._steps) * self._step_s()

    def submit(self, life: _Life, now: float) -> None:
        self._advance(now)
        self._waiting.append(life)
        self._admit()

    def end(self, now: float) -> str:
        """The row that ends now."""
        self._advance(now)
        due, name = heapq.heappop(self._due)
        self._steps = max(self._steps, due)
        held = self._running.pop(name)
        self._held -= held
        self._cached[name] = held
        self._idle += held
        self._admit()
        return name

    def stand(self, until: float, now: float) -> None:
        """Take new weights: nothing is made, and cached prefixes of episodes between turns are of no use afterwards."""
        self._advance(now)
        self.standing_s += until - max(now, min(self._until, until))
        self._until = max(self._until, until)
        self._cached.clear()
        self._idle = 0
        self.stamp += 1

    def release(self, life: _Life, now: float) -> None:
        self._advance(now)
        self._idle -= self._cached.pop(life.name, 0)
        self._held -= self._running.pop(life.name, 0)
        if life in self._waiting:
            self._waiting.remove(life)
        self._admit()

    def _step_s(self) -> float:
        return self._model.step_s + self._model.row_s * len(self._running)

    def _advance(self, now: float) -> None:
        ran = now - max(self._last, min(self._until, now))
        if self._running and ran > 0:
            self._steps += ran / self._step_s()
        self._last = now
        self.stamp += 1

    def _admit(self) -> None:
        model = self._model
        while self._waiting and len(self._running) < model.max_rows:
            life = self._waiting[0]
            reply = life.reply(model)
            prompt = life.context + life.fresh
            needs = prompt + reply
            if self._running and self._held + needs > model.kv_tokens:
                return
            self._waiting.popleft()
            known = self._cached.pop(life.name, 0)
            self._idle -= known
            while self._cached and self._held + self._idle + needs > model.kv_tokens:
                _, lost = self._cached.popitem(last=False)
                self._idle -= lost
                self.evicted += lost
            self.computed += prompt - known
            self.sampled += reply
            self._until = max(self._until, self._last) + (prompt - known) * model.prefill_s
            self._held += needs
            self._running[life.name] = needs
            heapq.heappush(self._due, (self._steps + reply, life.name))
            life.context = needs


class Engines:
    """All engines of a simulation, and the environments that their episodes wait for in between."""

    def __init__(self, model: EngineModel, turns: int, *, adapts: bool) -> None:
        """Episodes of so many turns each; `adapts` limits those that an engine serves to what it can serve well."""
        self._model, self._turns = model, turns
        self._engines = [_Engine(model) for _ in range(model.count)]
        self._loads = [0] * model.count
        self._adapts = adapts
        start = START if adapts else 2**62
        self._throttles = [Throttle(start) for _ in self._engines]
        self._gates: list[Gate[_Life]] = [Gate(start) for _ in self._engines]
        self._seen = [Load() for _ in self._engines]
        self._lives: dict[str, _Life] = {}
        self._due: list[tuple[float, int, int, str]] = []  # when, order, engine's stamp or -1, engine's number or episode
        self._order = 0

    def start(self, name: str, scale: float, now: float) -> None:
        """An episode begins whose turns are `scale` times as long as usual."""
        self._order += 1
        life = self._lives[name] = _Life(name, self._order, scale, self._turns, self._model.prompt_tokens)
        self._send(life, now)

    def stop(self, name: str, now: float) -> None:
        """An episode is over, or is not wanted any more."""
        life = self._lives.pop(name, None)
        if life is not None:
            self._leave(life, now)

    def publish(self, now: float) -> None:
        """New weights, everywhere at once or one engine after another."""
        seconds = self._model.publish_s
        for number, engine in enumerate(self._engines):
            wait = number * seconds if self._model.publish == "rolling" else 0.0
            if wait:
                self._at(now + wait, -2, str(number))
            else:
                engine.stand(now + seconds, now)
                self._told(number)

    def next(self) -> float:
        """When something happens next."""
        while self._due:
            when, _, stamp, name = self._due[0]
            stale = name not in self._lives if stamp == -1 else stamp >= 0 and self._engines[int(name)].stamp != stamp
            if not stale:
                return when
            heapq.heappop(self._due)
        return inf

    def happen(self) -> str | None:
        """Let it happen: the name of an episode if it has ended by that."""
        now, _, stamp, name = heapq.heappop(self._due)
        if stamp == -1:
            life = self._lives[name]
            if not life.turns:
                self.stop(name, now)
                return name
            self._send(life, now)
        elif stamp == -2:
            self._engines[int(name)].stand(now + self._model.publish_s, now)
            self._told(int(name))
        else:
            life = self._lives[self._engines[int(name)].end(now)]
            life.turns -= 1
            life.fresh = self._model.observation_tokens
            self._told(int(name))
            self._at(now + self._model.env_s * life.scale, -1, life.name)
        return None

    def load(self) -> Load:
        """Of all together."""
        return sum((engine.load() for engine in self._engines), Load())

    @property
    def sampled(self) -> int:
        """Tokens sampled, those in progress included."""
        return sum(engine.sampled for engine in self._engines)

    @property
    def evicted_share(self) -> float:
        """Of the prompt tokens computed, those that had stood in a cache and were driven out of it."""
        load = self.load()
        return load.evicted / max(1, load.computed)

    @property
    def standing_s(self) -> float:
        """Time that an engine stood on average to take new weights."""
        return sum(engine.standing_s for engine in self._engines) / len(self._engines)

    def adapt(self, now: float) -> int:
        """Look at all engines, and give the number of episodes that they can serve well."""
        for number, engine in enumerate(self._engines):
            load, gate = engine.load(), self._gates[number]
            limit = self._throttles[number].observe(load.since(self._seen[number]), len(gate))
            self._seen[number] = load
            self._submit(number, gate.resize(limit), now)
        return sum(gate.limit for gate in self._gates)

    def _send(self, life: _Life, now: float) -> None:
        number = pick(self._loads, life.home if self._model.affinity else None)
        if number != life.home:
            self._leave(life, now)
            life.home = number
            self._gates[number].enter(life.age)
        if self._gates[number].ask(life.age, life):
            self._submit(number, [life], now)
        else:
            self._told(number)

    def _leave(self, life: _Life, now: float) -> None:
        if life.home is not None:
            self._engines[life.home].release(life, now)
            self._submit(life.home, self._gates[life.home].leave(life.age), now)

    def _submit(self, number: int, lives: Iterable[_Life], now: float) -> None:
        for life in lives:
            self._engines[number].submit(life, now)
        self._told(number)

    def _told(self, number: int) -> None:
        engine = self._engines[number]
        self._loads[number] = engine.turns() + self._gates[number].parked
        due = engine.next()
        if due < inf:
            self._at(due, engine.stamp, str(number))

    def _at(self, when: float, stamp: int, name: str) -> None:
        self._order += 1
        heapq.heappush(self._due, (when, self._order, stamp, name))
