"""An invented country, made from a number: cities, rivers, people and companies, and the facts that bind them.

A fact is a relation from one title to a value, which may be a title again: that makes questions of two hops.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

NUM_CITIES, NUM_RIVERS, NUM_PEOPLE, NUM_COMPANIES = 60, 24, 140, 76
TRADES = (
    "glassblower", "surgeon", "cartographer", "engineer", "botanist", "printer", "architect", "composer", "chemist",
    "weaver",
)  # fmt: skip
WARES = (
    "clocks", "paper", "bicycles", "ceramics", "microscopes", "rope", "locks", "pianos", "turbines", "ink", "lenses",
    "tents",
)  # fmt: skip
FAME = (
    "salt market", "stone bridges", "windmills", "lantern festival", "cherry orchards", "university", "shipyards",
    "bell tower",
)  # fmt: skip
_HEADS = (
    "Bra", "Cor", "Dun", "El", "Fen", "Gal", "Har", "Il", "Jor", "Kel", "Lor", "Mar", "Nor", "Or", "Pel", "Quen", "Ros",
    "Sel", "Tor", "Var",
)  # fmt: skip
_MIDS = ("a", "be", "di", "ga", "lo", "mi", "na", "o", "ri", "sa", "tu", "ve")
_CITY_TAILS = ("burg", "fort", "haven", "mouth", "stead", "wick")
_RIVER_TAILS = ("ne", "sk", "ra", "lle")
_FIRST = (
    "Ada", "Bela", "Carin", "Doro", "Edvin", "Fila", "Gustav", "Hedda", "Ivo", "Jana", "Kaspar", "Lena", "Milo", "Nela",
    "Otto", "Petra",
)  # fmt: skip
_LAST_TAILS = ("man", "ski", "vale", "dotter", "quist", "rin")
_REGIONS = ("Northmark", "Eastreach", "Lowfen", "Highmoor", "Saltcoast", "Greenvale")


@dataclass(frozen=True, slots=True)
class Country:
    """Facts by title and relation, and every title's kind."""

    facts: Mapping[str, Mapping[str, str]]
    kinds: Mapping[str, str]


@lru_cache(maxsize=4)
def country(number: int) -> Country:
    """The country of a number; the same in every process."""
    chance = random.Random(f"country {number}")
    cities = _names(chance, NUM_CITIES, _CITY_TAILS)
    rivers = [f"River {name}" for name in _names(chance, NUM_RIVERS, _RIVER_TAILS)]
    families = _names(chance, NUM_PEOPLE, _LAST_TAILS)
    people = [f"{chance.choice(_FIRST)} {family}" for family in families]
    firms = [f"{name} Works" for name in _names(chance, NUM_COMPANIES, ("co", "tex", "dor", "lin"))]
    facts: dict[str, dict[str, str]] = {}
    for river in rivers:
        facts[river] = {"length": str(chance.randint(40, 900)), "region": chance.choice(_REGIONS)}
    for city, mayor in zip(cities, chance.sample(people, NUM_CITIES), strict=True):
        facts[city] = _city(chance, rivers, mayor)
    for person in people:
        facts[person] = {
            "birthplace": chance.choice(cities),
            "birthyear": str(chance.randint(1801, 1979)),
            "trade": chance.choice(TRADES),
        }
    for firm, founder in zip(firms, chance.sample(people, NUM_COMPANIES), strict=True):
        facts[firm] = {
            "founder": founder,
            "seat": chance.choice(cities),
            "since": str(int(facts[founder]["birthyear"]) + chance.randint(22, 50)),
            "product": chance.choice(WARES),
        }
    kinds = {**dict.fromkeys(cities, "city"), **dict.fromkeys(rivers, "river")}
    return Country(facts, {**kinds, **dict.fromkeys(people, "person"), **dict.fromkeys(firms, "company")})


def _city(chance: random.Random, rivers: Sequence[str], mayor: str) -> dict[str, str]:
    return {
        "river": chance.choice(rivers),
        "region": chance.choice(_REGIONS),
        "founded": str(chance.randint(880, 1790)),
        "mayor": mayor,
        "fame": chance.choice(FAME),
        "population": str(chance.randint(4, 900) * 1000 + chance.randint(0, 999)),
    }


def _names(chance: random.Random, count: int, tails: Sequence[str]) -> list[str]:
    """So many different names."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[f"{chance.choice(_HEADS)}{chance.choice(_MIDS)}{chance.choice(tails)}"] = None
    return list(found)
