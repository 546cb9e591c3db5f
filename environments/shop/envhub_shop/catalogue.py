"""The shop's products, made from a number."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from envhub_shop.vocabulary import DEPARTMENTS

PER_DEPARTMENT = 60
MOST_SHOPS = 1000
_BRANDS = (
    "Alderon", "Brightwell", "Caldera", "Dovetail", "Everbrook", "Foxmere", "Gullwing", "Hartline", "Inkwood", "Juniper & Co",
    "Kestrel", "Lumora", "Marlowe", "Nordhaven", "Oakridge", "Pinecrest",
)  # fmt: skip
_SERIES = ("Alto", "Bravo", "Comet", "Drift", "Ember", "Flint", "Grove", "Halo", "Iris", "Jade", "Karma", "Lyra")


@dataclass(frozen=True, slots=True)
class Product:
    """One product. `options` are the values that a customer chooses among, by the option's name."""

    code: str
    title: str
    department: str
    kind: str
    attributes: frozenset[str]
    options: Mapping[str, tuple[str, ...]]
    price_cents: int


@lru_cache(maxsize=4)
def catalogue(shop: int) -> Mapping[str, Product]:
    """All products of a shop by their codes; the same in every process."""
    chance = random.Random(f"shop {shop}")
    departments = [name for name in DEPARTMENTS for _ in range(PER_DEPARTMENT)]
    chance.shuffle(departments)
    products = [_product(chance, f"p{number:04}", department) for number, department in enumerate(departments, 1)]
    return {product.code: product for product in products}


def _product(chance: random.Random, code: str, name: str) -> Product:
    department = DEPARTMENTS[name]
    kind = chance.choice(department.kinds)
    attributes = chance.sample(department.attributes, chance.randint(4, 7))
    options = {}
    for option, values in department.options.items():
        kept = set(chance.sample(values, chance.randint(3, min(5, len(values)))))
        options[option] = tuple(value for value in values if value in kept)
    low, high = department.prices
    return Product(
        code=code,
        title=f"{chance.choice(_BRANDS)} {chance.choice(_SERIES)} {kind}, {attributes[0]}, {attributes[1]}",
        department=name,
        kind=kind,
        attributes=frozenset(attributes),
        options=options,
        price_cents=chance.randint(low, high) // 50 * 50 + 49,
    )


def price(cents: int) -> str:
    """A price in words."""
    return f"{cents // 100}.{cents % 100:02}"
