"""The shop's search: BM25 (Robertson and Zaragoza 2009) over titles, with the rarity of words as Lucene has it.

A title tells only two of a product's attributes; the others stand on its page of features.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache

from envhub_shop.catalogue import Product, catalogue

MOST_WORDS, MOST_FOUND = 32, 50
LONGEST_QUERY = 400
K1, B = 1.2, 0.75
_WORD = re.compile(r"[a-z0-9]+")


def words(text: str) -> tuple[str, ...]:
    """The words of a text that the search knows; only the first 400 characters and 32 words count."""
    return tuple(_WORD.findall(text[:LONGEST_QUERY].lower())[:MOST_WORDS])


class Ranking:
    """How well every product fits a word. Read-only, so it is shared by all environments of the process."""

    def __init__(self, products: Sequence[Product]) -> None:
        """Weigh the words of every product."""
        texts = [Counter(_WORD.findall(product.title.lower())) for product in products]
        mean = sum(text.total() for text in texts) / len(texts)
        spread = Counter(word for text in texts for word in text)
        self._weights: dict[str, dict[str, float]] = defaultdict(dict)
        for product, text in zip(products, texts, strict=True):
            for word, count in text.items():
                rarity = math.log(1 + (len(texts) - spread[word] + 0.5) / (spread[word] + 0.5))
                share = count * (K1 + 1) / (count + K1 * (1 - B + B * text.total() / mean))
                self._weights[word][product.code] = rarity * share

    def search(self, query: Sequence[str]) -> list[str]:
        """Codes of at most 50 products that hold some word of the query, best first."""
        scores: dict[str, float] = defaultdict(float)
        for word in dict.fromkeys(query):
            for code, weight in self._weights.get(word, {}).items():
                scores[code] += weight
        return sorted(scores, key=lambda code: (-round(scores[code], 9), code))[:MOST_FOUND]


@lru_cache(maxsize=4)
def ranking(shop: int) -> Ranking:
    """The search of a shop, made once in a process."""
    return Ranking(list(catalogue(shop).values()))
