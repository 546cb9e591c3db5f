"""Search: questions that only the articles about an invented country answer, found by full-text search."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from envhub.envs import EnvSpec, GeneratedTasks
from envhub.envs.core import Info
from envhub.envs.tools import ToolError, tool
from envhub_tools.library import library
from envhub_tools.question import ToolQuestion
from envhub_tools.riddles import HOPS, Hops, normal, riddle
from envhub_tools.styles import checked_style, tagged_answer

MOST_FOUND = 10
MOST_WORLDS = 1000
_SNIPPET = 70


class Search(ToolQuestion):
    """One question; the tagged answer counts, or without a tag the whole reply, compared as `normal` writes it."""

    def __init__(self, *, hops: Hops = "mixed", world: int = 0, style: str = "hermes") -> None:
        """Ask about the country of a number, in questions of so many hops. A task names its own country."""
        super().__init__(style=style)
        _check(hops, world)
        self._hops, self._world = hops, world

    def begin(self, task: Mapping[str, Any] | None) -> str:
        """Ask the task's question, or one drawn from the seed."""
        if task is None:
            task = riddle(int(self.np_random.integers(2**62)), hops=self._hops, world=self._world)
        self.task = dict(task)
        self.found: list[str] = []
        self.known: list[str] = []
        return str(self.task["question"])

    def finish(self, answer: str) -> tuple[float, Info]:
        """1 for the answer itself."""
        right = normal(tagged_answer(answer)[0]) == normal(str(self.task["answer"]))
        return float(right), {"success": right, "reward_parts": {"answer": float(right)}}

    def anchor(self) -> str:
        """Which articles were read, and which were found last."""
        return f"{'over' if self.done else 'open'}: {', '.join(self.known)}; {', '.join(self.found)}"

    @tool
    def search(self, query: str, limit: int = 5) -> str:
        """Search the encyclopaedia; gives titles and the first words of articles, best first.

        Args:
            query: words to look for.
            limit: how many articles to show, from 1 to 10.
        """
        if not 1 <= limit <= MOST_FOUND:
            raise ToolError(f"limit must be 1 to {MOST_FOUND}")
        shelf = library(self.task["world"])
        self.found = shelf.search(query, limit)
        return "\n".join(f"{title}: {shelf.articles[title][:_SNIPPET]}..." for title in self.found) or "nothing is found"

    @tool
    def read(self, title: str) -> str:
        """Read an article.

        Args:
            title: the article's title, as the search shows it.
        """
        text = library(self.task["world"]).read(title)
        self.known = sorted({*self.known, title})
        return text

    def legal_actions(self) -> tuple[str, ...]:
        """Searches for the question and its last words, the articles that were found, and an answer that says nothing."""
        asked = self.task["question"].rstrip("?")
        queries = {asked: None, " ".join(asked.split()[-2:]): None}
        return (
            *(self.call("search", query=query) for query in queries),
            *(self.call("read", title=title) for title in self.found),
            self.reply("unknown"),
        )

    def solve(self) -> str:
        """Find and read the articles that tell the answer, then answer."""
        for title in self.task["path"]:
            if title not in self.known:
                return self.call("read", title=title) if title in self.found else self.call("search", query=title)
        return self.reply(self.task["answer"])


def tasks(*, hops: Hops = "mixed", world: int = 0, style: str = "hermes") -> GeneratedTasks:
    """Questions about one country; some thousands are different, and each belongs to one split."""
    _check(hops, world)
    checked_style(style)
    return GeneratedTasks(partial(riddle, hops=hops, world=world))


def _check(hops: str, world: int) -> None:
    if hops not in HOPS:
        raise ValueError(f"hops {hops!r} must be one of: {', '.join(HOPS)}")
    if not isinstance(world, int) or not 0 <= world < MOST_WORLDS:
        raise ValueError(f"world {world!r} must be an integer from 0 to {MOST_WORLDS - 1}")


SPEC = EnvSpec(
    id="tool/Search-v1",
    make=Search,
    tasks=tasks,
    instructions=(
        "Answer the question from the encyclopaedia: search it and read articles by the tools. It tells of an invented "
        "country, so guess nothing. When you know the answer, reply without a call and write it alone between <answer> and "
        "</answer>."
    ),
    max_turns=20,
    success_reward=1.0,
    inline=True,
    baselines={"random": 0.0, "solver": 1.0},
    solver=Search.solve,
    tools=Search.toolbox().schemas(),
)
