"""After a restart sessions of the server before are brought back by doing their verbs again, or their owners are told."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgpack

from envhub.server.admission import Gate
from envhub.server.problems import Problem
from envhub.server.record import Record, Recorded, Verb
from envhub.server.sessions import Sessions
from envhub.server.workers import Fleet, Worker

AT_ONCE = 64
REPEATABLE = ("reset", "step", "legal_actions")


async def wake(record: Record, fleets: Mapping[str, Fleet], gates: Mapping[str, Gate], sessions: Sessions) -> None:
    """Give every recorded session its environment back, or its owner a 410 that says why not."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def bring_back(recorded: Recorded) -> None:
        async with turns:
            try:
                if recorded.gone is not None:
                    sessions.bury(recorded, Problem(410, "session_lost", recorded.gone, "Open a new session."))
                    return
                worker, number = await _placed(recorded, fleets.get(recorded.env_id), gates.get(recorded.env_id))
            except Problem as problem:
                detail = f"The server was restarted. {problem.detail}"
                sessions.bury(recorded, Problem(410, "session_lost", detail, "Open a new session."))
            else:
                sessions.revive(recorded, worker, number)

    async with asyncio.TaskGroup() as group:
        for recorded in record.found:
            group.create_task(bring_back(recorded))


async def _placed(recorded: Recorded, fleet: Fleet | None, gate: Gate | None) -> tuple[Worker, int]:
    """A worker that holds the session's environment where it was, and a place for it. Raises Problem."""
    if fleet is None or gate is None or not fleet.config.repeatable:
        raise _cannot("This environment is not declared to be repeatable.")
    verbs = repeated(recorded)
    if verbs is None:
        raise _cannot("Forks and snapshots cannot be repeated.")
    worker = fleet.pick()
    if worker is None or gate.held >= gate.capacity or isinstance(gate.ask(recorded.tenant, 0.0), str):
        raise _cannot("There is no place for it now.")
    number = worker.open()
    try:
        await worker.do(number, "make", fleet.config.options, fleet.config.step_deadline_s)
        for verb in verbs:
            await _same(worker, number, verb, fleet.config.step_deadline_s)
        return worker, number
    except BaseException:
        fleet.abandon(worker, number)
        gate.release(recorded.tenant)
        raise


async def _same(worker: Worker, number: int, verb: Verb, deadline_s: float) -> None:
    try:
        value, code = await worker.do(number, verb.verb, verb.argument, deadline_s), None
    except Problem as problem:
        value, code = None, problem.code
    if code != (verb.problem and verb.problem[1]) or not same_answer(value, verb.value):
        raise _cannot(f"Its environment did not repeat its answer to verb {verb.place}, a {verb.verb}.")


def _cannot(why: str) -> Problem:
    return Problem(410, "session_lost", why)


def repeated(recorded: Recorded) -> tuple[Verb, ...] | None:
    """The verbs that decide where a session's environment is: from its last reset with a seed, or all. None if they do not."""
    verbs = recorded.verbs
    seeded = [n for n, v in enumerate(verbs) if v.verb == "reset" and v.argument[0] is not None and v.problem is None]
    decisive = verbs[seeded[-1] if seeded else 0 :]
    known = (seeded or not recorded.forked) and all(verb.verb in REPEATABLE for verb in decisive)
    return decisive if known else None


def same_answer(one: Any, other: Any) -> bool:
    """Whether two answers are equal to the bit; NaN equals itself."""
    return bool(msgpack.packb(one, unicode_errors="surrogatepass") == msgpack.packb(other, unicode_errors="surrogatepass"))
