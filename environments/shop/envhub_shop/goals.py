"""What a customer wants, drawn from a product that has it, and what a purchase is worth to them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envhub_shop.catalogue import Product, catalogue, price


@dataclass(frozen=True, slots=True)
class Worth:
    """A purchase's reward and its parts, which add up to it."""

    reward: float
    parts: Mapping[str, float]


def goal(seed: int, *, shop: int) -> Mapping[str, Any]:
    """A task: the instruction, what it asks for, and the code of one product that has all of it."""
    chance, products = random.Random(seed), catalogue(shop)
    target = products[chance.choice(list(products))]
    attributes = sorted(chance.sample(sorted(target.attributes), chance.randint(2, 3)))
    named = chance.sample(list(target.options), chance.randint(1, 2))
    options = {name: chance.choice(target.options[name]) for name in sorted(named)}
    most = (target.price_cents // 1000 + chance.randint(1, 3)) * 1000
    return {
        "shop": shop,
        "instruction": _instruction(target.kind, attributes, options, most),
        "department": target.department,
        "kind": target.kind,
        "attributes": attributes,
        "options": options,
        "most_cents": most,
        "target": target.code,
    }


def _instruction(kind: str, attributes: Sequence[str], options: Mapping[str, str], most_cents: int) -> str:
    chosen = " and ".join(f"{name} {value.removeprefix(name + ' ')}" for name, value in options.items())
    return f"Buy {kind}: {', '.join(attributes)}; with {chosen}; for at most {price(most_cents)}."


def worth(wanted: Mapping[str, Any], bought: Product, chosen: Mapping[str, str]) -> Worth:
    """The purchase's reward (arXiv:2207.01206, eq. 1): the share of what was wanted, times how near the type is.

    The paper judges the type by comparing titles; here every product has a kind and a department: 1 for the same kind, 0.5 for
    another kind of the same department, 0 for all else.
    """
    attributes = sum(attribute in bought.attributes for attribute in wanted["attributes"])
    options = sum(chosen.get(name) == value for name, value in wanted["options"].items())
    cheap = int(bought.price_cents <= wanted["most_cents"])
    near = 1.0 if bought.kind == wanted["kind"] else 0.5 if bought.department == wanted["department"] else 0.0
    count = len(wanted["attributes"]) + len(wanted["options"]) + 1
    parts = {"attributes": near * attributes / count, "options": near * options / count, "price": near * cheap / count}
    return Worth(near * (attributes + options + cheap) / count, parts)
