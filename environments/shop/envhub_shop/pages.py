"""The shop's pages: where a customer is, the buttons that lead on, and the page in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from envhub_shop.catalogue import Product, catalogue, price
from envhub_shop.ranking import ranking, words

PER_PAGE = 10
HOME, NEXT, PREVIOUS, DESCRIPTION, FEATURES, BUY = (
    "back to search",
    "next page",
    "previous page",
    "description",
    "features",
    "buy now",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a customer is: at the search box, or in results, or at a product of theirs, or in a text about it."""

    shop: int
    query: tuple[str, ...] | None = None
    page: int = 0
    code: str = ""
    text: str = ""
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def found(self) -> list[str]:
        """Codes of the products that the query finds."""
        return ranking(self.shop).search(self.query or ())

    @property
    def shown(self) -> list[str]:
        """Codes on the current page of results."""
        return self.found[self.page * PER_PAGE : (self.page + 1) * PER_PAGE]

    @property
    def product(self) -> Product:
        """The product that is looked at."""
        return catalogue(self.shop)[self.code]

    def buttons(self) -> tuple[str, ...]:
        """What can be clicked."""
        if self.query is None:
            return ()
        if self.text:
            return (HOME, PREVIOUS)
        if self.code:
            values = [value for values in self.product.options.values() for value in values]
            return (*values, DESCRIPTION, FEATURES, BUY, PREVIOUS, HOME)
        more = (self.page + 1) * PER_PAGE < len(self.found)
        return (*self.shown, *([NEXT] if more else []), *([PREVIOUS] if self.page else []), HOME)

    def search(self, query: str) -> "Place":
        """The results for a query."""
        return Place(self.shop, words(query))

    def click(self, button: str) -> "Place":
        """Where a button of this page leads; buying leads nowhere."""
        if button == HOME:
            return Place(self.shop)
        if self.text:
            return replace(self, text="")
        if not self.code:
            step = {NEXT: 1, PREVIOUS: -1}.get(button)
            return replace(self, code=button) if step is None else replace(self, page=self.page + step)
        if button == PREVIOUS:
            return replace(self, code="", chosen={})
        if button in (DESCRIPTION, FEATURES):
            return replace(self, text=button)
        return replace(
            self, chosen={**self.chosen, **{name: button for name, its in self.product.options.items() if button in its}}
        )

    def show(self) -> str:
        """The page in words; what can be clicked stands in brackets."""
        if self.query is None:
            return "Search the shop: search[words]"
        if self.text:
            return f"{_about(self.product, self.text)}\n[{HOME}] [{PREVIOUS}]"
        return self._product() if self.code else self._results()

    def _results(self) -> str:
        found, products = self.found, catalogue(self.shop)
        pages = max(1, -(-len(found) // PER_PAGE))
        lines = [f"[{code}] {products[code].title}; {price(products[code].price_cents)}" for code in self.shown]
        head = f"{len(found)} products found, page {self.page + 1} of {pages}" if found else "No product is found."
        buttons = [f"[{button}]" for button in self.buttons() if button not in products]
        return "\n".join([head, *lines, " ".join(buttons)])

    def _product(self) -> str:
        product = self.product
        lines = [f"{product.title}; {price(product.price_cents)}"]
        for name, values in product.options.items():
            lines.append(f"{name}: " + " ".join(f"[{v}]{' (chosen)' if self.chosen.get(name) == v else ''}" for v in values))
        return "\n".join([*lines, " ".join(f"[{button}]" for button in (DESCRIPTION, FEATURES, BUY, PREVIOUS, HOME))])


def _about(product: Product, text: str) -> str:
    if text == FEATURES:
        return "\n".join(["Features:", *(f"- {attribute}" for attribute in sorted(product.attributes))])
    names = " and ".join(product.options)
    return f"{product.title.split(',')[0]}, from our {product.department} department; comes in a choice of {names}."
