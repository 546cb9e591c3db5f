"""Questions about the country: one hop asks for a fact of a title; two hops ask for a fact of a fact."""

import random
import re
from collections.abc import Mapping
from typing import Any, Literal

from envhub_tools.country import country

Hops = Literal["one", "two", "mixed"]
HOPS: tuple[Hops, ...] = ("one", "two", "mixed")

ONE: Mapping[tuple[str, str], str] = {
    ("city", "river"): "Which river does {} lie on?",
    ("city", "region"): "In which region is {}?",
    ("city", "founded"): "In which year was {} founded?",
    ("city", "mayor"): "Who is the mayor of {}?",
    ("city", "population"): "How many inhabitants has {}?",
    ("river", "length"): "How many kilometres long is the {}?",
    ("river", "region"): "In which region does the {} rise?",
    ("person", "birthplace"): "In which city was {} born?",
    ("person", "birthyear"): "In which year was {} born?",
    ("person", "trade"): "What was the trade of {}?",
    ("company", "founder"): "Who established {}?",
    ("company", "seat"): "In which city has {} its seat?",
    ("company", "since"): "In which year was {} established?",
    ("company", "product"): "What does {} make?",
}
LINKS: Mapping[tuple[str, str], str] = {
    ("city", "river"): "the river on which {} lies",
    ("city", "mayor"): "the mayor of {}",
    ("person", "birthplace"): "the birthplace of {}",
    ("company", "founder"): "the person who established {}",
    ("company", "seat"): "the city where {} has its seat",
}
_DROPPED = re.compile(r"\b(?:the|a|an|river)\b|[^\w\s]")


def riddle(seed: int, *, hops: Hops, world: int) -> Mapping[str, Any]:
    """A task: the question, its answer, and the titles of the articles that tell it, in order."""
    chance, known = random.Random(seed), country(world)
    two = hops == "two" or (hops == "mixed" and chance.random() < 0.5)
    first, link = "", ""
    if two:
        kind, link = chance.choice(list(LINKS))
        first = chance.choice([title for title, its in known.kinds.items() if its == kind])
        subject = known.facts[first][link]
        named = LINKS[kind, link].format(first)
    else:
        subject = chance.choice(list(known.facts))
        named = subject
    relation = chance.choice([relation for kind, relation in ONE if kind == known.kinds[subject]])
    question = ONE[known.kinds[subject], relation].format(named).replace("the the", "the")
    path = [first, subject] if two else [subject]
    return {"world": world, "question": question, "answer": known.facts[subject][relation], "path": path}


def normal(answer: str) -> str:
    """An answer for comparison: lower case, without articles, the word river, punctuation and spare blanks."""
    return " ".join(_DROPPED.sub(" ", answer.lower().replace(",", "")).split())
