"""What the shop may sell: departments with their kinds of product, attributes, options and prices."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Department:
    """A department. Kinds, attributes and option values are words that a customer may ask for; prices are in cents."""

    kinds: tuple[str, ...]
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    prices: tuple[int, int]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


COLORS = _words("black, white, navy, olive, sand, crimson, teal, grey")

DEPARTMENTS: Mapping[str, Department] = {
    "shoes": Department(
        _words("running shoes, hiking boots, sandals, slippers"),
        _words(
            "waterproof, non-slip sole, arch support, breathable mesh, memory foam, wide fit, vegan leather, quick lace, "
            "shock absorbing, machine washable, ankle support, lightweight"
        ),
        {"size": _words("size 37, size 38, size 39, size 40, size 41, size 42, size 43, size 44"), "color": COLORS},
        (1900, 14900),
    ),
    "clothing": Department(
        _words("rain jacket, cardigan, polo shirt, yoga pants"),
        _words(
            "organic cotton, merino wool, stretch fabric, two-way zipper, hidden pockets, wrinkle free, long sleeves, "
            "quick dry, slim fit, relaxed fit, sun protection, recycled fibre"
        ),
        {"size": _words("x-small, small, medium, large, x-large, xx-large"), "color": COLORS},
        (1500, 12900),
    ),
    "lighting": Department(
        _words("desk lamp, floor lamp, night light, string lights"),
        _words(
            "dimmable, touch control, remote control, battery powered, energy saving, flicker free, adjustable arm, "
            "solar charging, built-in timer, motion sensor, shatterproof, usb port"
        ),
        {
            "glow": _words("warm white, neutral white, daylight, amber"),
            "finish": _words("brass, nickel, copper, oak, matt black"),
        },
        (900, 8900),
    ),
    "kitchen": Department(
        _words("travel mug, frying pan, water bottle, lunch box"),
        _words(
            "dishwasher safe, leakproof, bpa free, double walled, non-stick, microwave safe, stackable, stainless steel, "
            "induction ready, easy grip, freezer safe, scratch resistant"
        ),
        {"volume": _words("300 ml, 450 ml, 600 ml, 900 ml, 1200 ml"), "color": COLORS},
        (700, 6900),
    ),
    "bags": Department(
        _words("backpack, messenger bag, duffel bag, sling bag"),
        _words(
            "laptop sleeve, water repellent, padded straps, anti-theft pocket, shoe compartment, luggage strap, foldable, "
            "reflective strip, charging port, magnetic buckle, trolley sleeve, tear resistant"
        ),
        {"capacity": _words("8 litres, 15 litres, 22 litres, 30 litres, 45 litres"), "color": COLORS},
        (1800, 11900),
    ),
    "audio": Department(
        _words("headphones, earbuds, portable speaker, bookshelf speakers"),
        _words(
            "noise cancelling, fast charging, deep bass, sweat resistant, multipoint pairing, low latency, voice assistant, "
            "foldable design, long battery life, detachable cable, built-in microphone, hi-res sound"
        ),
        {"color": COLORS, "bundle": _words("device only, with case, with stand, with spare cable")},
        (1900, 24900),
    ),
    "bedding": Department(
        _words("duvet cover, pillow, fitted sheet, blanket"),
        _words(
            "hypoallergenic, cooling, bamboo fibre, down alternative, deep pockets, fade resistant, extra soft, pet friendly, "
            "oeko-tex certified, reversible, weighted, anti-pilling"
        ),
        {"bed": _words("twin, full, queen, king"), "color": COLORS},
        (1200, 13900),
    ),
    "snacks": Department(
        _words("trail mix, granola bars, rice crackers, dried mango"),
        _words(
            "gluten free, no added sugar, high protein, low sodium, organic, nut free, kosher, dairy free, non gmo, "
            "plant based, high fibre, keto friendly"
        ),
        {
            "flavor": _words("plain, sea salt, honey, cinnamon, chili, cocoa"),
            "pack": _words("pack of 1, pack of 4, pack of 8, pack of 12"),
        },
        (300, 3900),
    ),
}
