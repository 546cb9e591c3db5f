"""The country's encyclopaedia: an article for every title, indexed for full-text search by SQLite's FTS5 in memory.

A library is read-only and shared by all environments of the process, so none of it is ever part of an episode's state.
"""

import difflib
import re
import sqlite3
import threading
from collections.abc import Mapping
from functools import lru_cache

from envhub.envs.tools import ToolError
from envhub.errors import ConfigError
from envhub_tools.country import country

MOST_WORDS = 32
LONGEST_TITLE = 80
_WORD = re.compile(r"[^\W_]+")
_ARTICLES: Mapping[str, str] = {
    "city": "{title} is a city in {region}, on the {river}. It was founded in {founded} and has {population} inhabitants. "
    "It is known for its {fame}. The mayor is {mayor}.",
    "river": "The {title} is a river of {length} kilometres that rises in {region}.",
    "person": "{title} was born in {birthyear} in {birthplace}. Trade: {trade}.",
    "company": "{title} is a company that makes {product}. It was established in {since} by {founder} "
    "and has its seat in {seat}.",
}


class Library:
    """Articles by title, and a search in them. Safe for several threads."""

    def __init__(self, number: int) -> None:
        """Write the encyclopaedia of a country. Raises ConfigError where SQLite was built without FTS5."""
        known = country(number)
        self.articles = {
            title: _ARTICLES[known.kinds[title]].format(title=title, **facts) for title, facts in known.facts.items()
        }
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._index.execute("CREATE VIRTUAL TABLE articles USING fts5(title, body)")
        except sqlite3.OperationalError as error:
            raise ConfigError(f"no full-text search: {error}", mend="use a Python whose SQLite has FTS5") from error
        self._index.executemany("INSERT INTO articles VALUES (?, ?)", self.articles.items())

    def search(self, query: str, limit: int) -> list[str]:
        """Titles of the articles that hold most of the query's words, best first. Raises ToolError if it has no words."""
        words = dict.fromkeys(_WORD.findall(query[: MOST_WORDS * 32].lower()))
        if not words:
            raise ToolError("the query has no words")
        match = " OR ".join(f'"{word}"' for word in list(words)[:MOST_WORDS])  # quoted, so that none is taken for syntax
        with self._lock:
            rows = self._index.execute(
                "SELECT title FROM articles WHERE articles MATCH ? ORDER BY bm25(articles, 4.0, 1.0), title LIMIT ?",
                (match, limit),
            ).fetchall()
        return [title for (title,) in rows]

    def read(self, title: str) -> str:
        """An article. Raises ToolError, with titles that look alike."""
        if title in self.articles:
            return self.articles[title]
        near = difflib.get_close_matches(title[:LONGEST_TITLE], self.articles, n=3)
        raise ToolError(f"no article {title[:LONGEST_TITLE]!r}" + (f"; there are: {', '.join(near)}" if near else ""))


@lru_cache(maxsize=4)
def library(number: int) -> Library:
    """The library of a country, made once in a process."""
    return Library(number)
