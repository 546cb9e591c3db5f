"""Word problems that need several exact calculations with big numbers; made from a seed, with the steps that solve them."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envhub_tools.arithmetic import evaluate

NAMES = ("Amara", "Benno", "Chidi", "Dalia", "Emre", "Freya", "Goran", "Hana", "Ilse", "Jonas", "Kira", "Luca", "Mina", "Noor")
GOODS = ("bolts", "tiles", "lamps", "pencils", "bricks", "valves", "buttons", "candles", "bearings", "seedlings")
Problem = tuple[str, Sequence[str]]  # the question, and expressions in which {0}, {1}, ... are the earlier results


def problem(seed: int) -> Mapping[str, Any]:
    """A task: its question, the calculations that solve it, and their last result, which is the answer."""
    chance = random.Random(seed)
    question, templates = chance.choice(KINDS)(chance)
    steps: list[str] = []
    results: list[str] = []
    for template in templates:
        steps.append(template.format(*results))
        value = str(evaluate(steps[-1]))
        results.append(value if value.isdigit() else f"({value})")
    return {"question": question, "steps": steps, "answer": results[-1].strip("()")}


def _factory(chance: random.Random) -> Problem:
    goods, per_crate, crates = chance.choice(GOODS), chance.randint(1201, 9899), chance.randint(1201, 9899)
    broken, boxes = chance.randint(101, 999), chance.randint(23, 97)
    return (
        f"A factory packs {per_crate} {goods} into each of {crates} crates. {broken} crates are lost on the way. What is left "
        f"is repacked into boxes of {boxes}, each filled before the next is begun. How many {goods} are left "
        f"for a last box that is not full (0 if none are left)?",
        (f"{crates}-{broken}", f"{per_crate}*{{0}}", f"{{1}}%{boxes}"),
    )


def _interest(chance: random.Random) -> Problem:
    name, start, rate, years = chance.choice(NAMES), chance.randint(1201, 98999), chance.randint(2, 9), chance.randint(3, 6)
    fee = chance.randint(11, 99)
    return (
        f"{name} puts {start} crowns into an account that grows by {rate} percent at the end of each year, and takes nothing "
        f"out. After {years} years a fee of {fee} crowns is paid from it once. Exactly how many are left? Round nothing.",
        (f"(100+{rate})/100", f"{{0}}**{years}", f"{start}*{{1}}", f"{{2}}-{fee}"),
    )


def _journey(chance: random.Random) -> Problem:
    name, one, two = chance.choice(NAMES), chance.randint(1201, 9899), chance.randint(1201, 9899)
    fast, slow = chance.sample(range(41, 240), 2)
    return (
        f"{name}'s ship sails {one} miles at {fast} miles an hour and then {two} miles at {slow} miles an hour. What is its "
        f"average speed over the whole journey in miles an hour, as a reduced fraction?",
        (f"{one}/{fast}", f"{two}/{slow}", "{0}+{1}", f"({one}+{two})/{{2}}"),
    )


def _orders(chance: random.Random) -> Problem:
    name, goods, more = chance.choice(NAMES), *chance.sample(GOODS, 2)
    n, p, m, q = (chance.randint(1201, 98999) for _ in range(4))
    people = chance.randint(7, 39)
    return (
        f"{name} orders {n} {goods} at {p} cents each and {m} {more} at {q} cents each. The bill is shared by {people} "
        f"partners; each pays the same whole number of cents, as many as possible, and {name} pays what is left over on top. "
        f"How many cents does {name} pay on top?",
        (f"{n}*{p}", f"{m}*{q}", "{0}+{1}", f"{{2}}%{people}"),
    )


def _reservoir(chance: random.Random) -> Problem:
    fill, days, leak = chance.randint(120001, 989999), chance.randint(101, 989), chance.randint(12001, 98999)
    towns, use = chance.randint(13, 89), chance.randint(101, 999)
    return (
        f"Each day {fill} litres flow into a reservoir, {leak} litres seep away, and each of {towns} villages takes {use} "
        f"litres. It was empty at first. How many litres does it hold after {days} days?",
        (f"{towns}*{use}", f"{fill}-{leak}-{{0}}", f"{{1}}*{days}"),
    )


def _tiling(chance: random.Random) -> Problem:
    wide, long, side = chance.randint(1201, 9899), chance.randint(1201, 9899), chance.randint(12, 60)
    price = chance.randint(101, 999)
    return (
        f"A hall of {wide} by {long} decimetres is laid with square tiles of {side} decimetres a side, in straight rows from "
        f"one corner; tiles are cut at the far walls, and the rest of a cut tile is thrown away. A tile costs {price} cents. "
        f"How many cents do all tiles cost?",
        (f"({wide}+{side}-1)//{side}", f"({long}+{side}-1)//{side}", "{0}*{1}", f"{{2}}*{price}"),
    )


KINDS: tuple[Callable[[random.Random], Problem], ...] = (_factory, _interest, _journey, _orders, _reservoir, _tiling)
