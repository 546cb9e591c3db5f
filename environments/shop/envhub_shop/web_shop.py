"""WebShop: search, click, choose and buy what an instruction asks for (in the spirit of arXiv:2207.01206)."""

import re
from functools import partial
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks
from envhub.envs.core import Info, StateLevel
from envhub_shop.catalogue import MOST_SHOPS
from envhub_shop.goals import goal, worth
from envhub_shop.pages import BUY, NEXT, Place

_ACTION = re.compile(r"(search|click)\[([^\[\]]*)\]", re.IGNORECASE)
_LONGEST_REPLY = 4096


class WebShop(Env):
    """The last search[...] or click[...] of a reply counts; buying ends the episode, and only buying is rewarded."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, shop: int = 0) -> None:
        """Send customers to the shop of a number. A task names its own."""
        _check(shop)
        self._shop = shop

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Enter the task's shop, or one's own with an instruction drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        self.task = dict(goal(int(self.np_random.integers(2**62)), shop=self._shop) if task is None else task)
        self.place, self.over = Place(self.task["shop"]), False
        return self._show(), {"anchor": self._anchor()}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Follow the reply's action."""
        verb, words = _read(action)
        if self.over:
            return "The episode is over.", 0.0, True, False, {"illegal": True, "anchor": self._anchor()}
        if not (verb == "click" and words in self.place.buttons()) and not (verb == "search" and self.place.query is None):
            said = "That is not possible here. Write search[words] at the search box, or click[what stands in brackets]."
            return f"{said}\n{self._show()}", 0.0, False, False, {"illegal": True, "anchor": self._anchor()}
        if words == BUY and verb == "click":
            return self._buy()
        self.place = self.place.search(words) if verb == "search" else self.place.click(words)
        return self._show(), 0.0, False, False, {"anchor": self._anchor()}

    def legal_actions(self) -> tuple[str, ...]:
        """Searches for the instruction's words, or every button of the page."""
        if self.over:
            return ()
        if self.place.query is None:
            kind, attributes = self.task["kind"], self.task["attributes"]
            return (f"search[{kind}]", f"search[{kind} {' '.join(attributes)}]", f"search[{' '.join(attributes)}]")
        return tuple(f"click[{button}]" for button in self.place.buttons())

    def solve(self) -> str:
        """Find the product that the task was drawn from, choose what is wanted, and buy it."""
        place, wanted = self.place, self.task["options"]
        target = Place(place.shop, code=self.task["target"]).product
        if place.query is None:
            return f"search[{target.title}]"
        if not place.code:
            return f"click[{target.code if target.code in place.shown else NEXT}]"
        missing = [value for name, value in wanted.items() if place.chosen.get(name) != value]
        return f"click[{missing[0] if missing else BUY}]"

    def _buy(self) -> tuple[str, float, bool, bool, Info]:
        self.over = True
        value = worth(self.task, self.place.product, self.place.chosen)
        info: Info = {"success": value.reward == 1.0, "reward_parts": dict(value.parts), "anchor": self._anchor()}
        return f"You have bought {self.place.product.title}.", value.reward, True, False, info

    def _show(self) -> str:
        return f"{self.task['instruction']}\n\n{self.place.show()}"

    def _anchor(self) -> str:
        place = self.place
        query = "" if place.query is None else f"{' '.join(place.query)}?"
        chosen = ", ".join(f"{name} {value}" for name, value in sorted(place.chosen.items()))
        return f"{'over' if self.over else 'open'}: {query} {place.page} {place.code} {place.text} {chosen}"


def _read(reply: str) -> tuple[str, str]:
    """The verb and the words of a reply's last action, in lower case with single blanks; empty if there is none."""
    found = _ACTION.findall(reply[-_LONGEST_REPLY:])
    return (found[-1][0].lower(), " ".join(found[-1][1].lower().split())) if found else ("", "")


def tasks(*, shop: int = 0) -> GeneratedTasks:
    """Instructions by seed; the splits share the shop and no instruction."""
    _check(shop)
    return GeneratedTasks(partial(goal, shop=shop))


def _check(shop: int) -> None:
    if not isinstance(shop, int) or not 0 <= shop < MOST_SHOPS:
        raise ValueError(f"shop {shop!r} must be an integer from 0 to {MOST_SHOPS - 1}")


SPEC = EnvSpec(
    id="shop/WebShop-v1",
    make=WebShop,
    tasks=tasks,
    instructions=(
        "You shop for a customer. Each reply is one action: search[words] at the search box, or click[button] for what stands "
        "in brackets on the page: a product's code, an option's value, a page, or buy now, which ends the visit. Buy what the "
        "customer asks for: its kind, its features, its options, and no dearer than the price."
    ),
    max_turns=30,
    success_reward=1.0,
    inline=True,
    baselines={"random": 0.005, "first result": 0.28, "solver": 1.0},
    solver=WebShop.solve,
)
