"""Wiring of the lab's statistics: which questions runs raise, what numpy is needed for, and the page of a run."""

from collections.abc import Sequence
from pathlib import Path

from flightlog.app import lab
from flightlog.lab.book import Book
from flightlog.lab.questions import Taste, of_branches, of_samples, of_sessions, ways
from flightlog.lab.statistics.actions import Action, by_tool
from flightlog.lab.statistics.analysis import analyse
from flightlog.lab.statistics.divergence import Node, tree
from flightlog.lab.statistics.shape import Analysis
from flightlog.lab.statistics.writing import MARK, NAME, written
from flightlog.model.errors import Conflict, NotFound
from flightlog.model.extras import optional
from flightlog.model.pages import Page, Tier
from flightlog.model.runtime import Runtime
from flightlog.store.pages import publish

BY = ("arguments", "tool")


def analysed(runtime: Runtime, books: Sequence[Book], by: str = BY[0], seed: int = 0) -> Analysis:
    """Answer what these runs can be asked; of a single one also what the branches beside it say."""
    taste = Taste(by_tool if by == "tool" else _whole, runtime.program_path)
    many = len(books) > 1
    questions = [each for book in books for each in of_samples(book, taste, prefix=f"../{book.name}/" if many else "")]
    questions += of_branches(books if many else family(runtime, books[0]), taste)
    questions += of_sessions(books)
    with optional():
        return analyse(questions, seed)


def family(runtime: Runtime, book: Book) -> list[Book]:
    """A run with every branch of it that lies beside it, and the branches of those."""
    beside, _ = lab.readable(runtime, book.path.parent)
    found = {book.name: book}
    while True:
        more = {
            each.name: each
            for each in beside
            if each.state.branch and each.state.branch.source_run in found and each.name not in found
        }
        if not more:
            return list(found.values())
        found |= more


def divergence(runtime: Runtime, books: Sequence[Book], by: str = BY[0]) -> Node:
    """Lay what the sessions of these runs did over each other."""
    return tree(ways(books, Taste(by_tool if by == "tool" else _whole, runtime.program_path)))


def write(runtime: Runtime, book: Book, analysis: Analysis) -> Path:
    """Write the analysis of a run beside its other pages; what a person wrote there is left alone."""
    if not any(group.n for answer in analysis.answers for group in answer.groups):
        raise NotFound(
            f"{book.name} has no samples, replicates or branches", hint=f"flightlog lab resample {book.name}"
        )
    path = book.path / NAME
    if path.exists() and MARK not in path.read_text("utf-8", "replace"):
        raise Conflict(f"{NAME} of {book.name} was written by a person", hint=f"rename it first: {path}")
    publish(
        book.path, [Page(NAME, Tier.PRIVATE, written(book.name, analysis, divergence(runtime, family(runtime, book))))]
    )
    return path


def _whole(action: Action) -> Action:
    return action
