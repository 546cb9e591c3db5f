"""An office's records that change: events in words, what they make true, and tasks of events and questions from a seed.

A record is a key such as "locker of Ana" with a number as its value, both text. An event is a list: ["set", key, value],
["copy", to, from], ["swap", one, other] or ["drop", key].
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

THINGS = ("locker", "desk", "badge", "phone", "parking space", "pigeonhole")
NAMES = ("Ana", "Bo", "Cem", "Dita", "Egon", "Faye", "Gil", "Hope", "Ines", "Jude", "Kofi", "Lea", "Max", "Nia", "Otis", "Pia")
NOTHING = "unknown"
NUM_START = 5
_WORDS: Mapping[str, str] = {
    "set": "The {} is now {}.",
    "copy": "The {} becomes the same number as the {} is at present.",
    "swap": "The {} and the {} have swapped their numbers.",
    "drop": "The {} is given up: there is no such record any more.",
}
Event = Sequence[str]


def say(event: Event) -> str:
    """An event in words."""
    return _WORDS[event[0]].format(*event[1:])


def after(records: Mapping[str, str], event: Event) -> dict[str, str]:
    """The records once an event has happened."""
    match list(event):
        case ["set", key, value]:
            return {**records, key: value}
        case ["copy", to, source]:
            return {**records, to: records[source]}
        case ["swap", one, other]:
            return {**records, one: records[other], other: records[one]}
        case ["drop", key]:
            return {name: value for name, value in records.items() if name != key}
    raise ValueError(f"no event {event!r}")


def story(seed: int, *, facts: int, questions: int) -> Mapping[str, Any]:
    """A task: the records at the start, the events, and the keys that are asked for."""
    chance = random.Random(seed)
    keys = [f"{thing} of {name}" for thing in chance.sample(THINGS, 2) for name in chance.sample(NAMES, 5)]
    numbers = [str(number) for number in chance.sample(range(1000, 10_000), NUM_START + facts)]
    start = dict(zip(chance.sample(keys, NUM_START), numbers, strict=False))
    records, events = dict(start), []
    for number in numbers[NUM_START:]:
        events.append(_event(chance, keys, records, number))
        records = after(records, events[-1])
    if records == start:  # a swap and its undoing
        events[-1] = ["set", events[-1][1], numbers[-1]]
    touched = sorted({key for event in events for key in event[1:] if key in keys})
    others = [key for key in start if key not in touched]
    asked = chance.sample(touched, len(touched)) + chance.sample(others, len(others))
    return {"start": start, "events": events, "asked": asked[:questions]}


def _event(chance: random.Random, keys: Sequence[str], records: Mapping[str, str], number: str) -> list[str]:
    one, other = chance.sample(list(records), 2) if len(records) > 2 else ("", "")
    targets = [key for key in keys if one and records.get(key) != records[one]]
    if not targets or chance.random() < 0.4:
        return ["set", chance.choice(keys), number]
    if chance.random() < 0.25:
        return ["drop", one]
    if records[one] != records[other] and chance.random() < 0.4:
        return ["swap", one, other]
    return ["copy", chance.choice(targets), one]
