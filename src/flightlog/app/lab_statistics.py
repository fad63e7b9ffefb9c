"""Wiring of the lab's statistics: which questions runs raise, what numpy is needed for, and the page of a run."""

from collections.abc import Sequence
from pathlib import Path

from flightlog.app import lab
from flightlog.lab.book import RunStore
from flightlog.lab.questions import (
    ComparisonOptions,
    branch_questions,
    iter_action_paths,
    sample_questions,
    session_questions,
)
from flightlog.lab.statistics.actions import Action, action_by_tool
from flightlog.lab.statistics.analysis import analyze_questions
from flightlog.lab.statistics.divergence import PathNode, build_path_tree
from flightlog.lab.statistics.shape import ExperimentAnalysis
from flightlog.lab.statistics.writing import MARK, NAME, render_analysis
from flightlog.model.errors import Conflict, NotFound
from flightlog.model.extras import optional_import
from flightlog.model.pages import OutputFile, Tier
from flightlog.model.runtime import Runtime
from flightlog.store.pages import write_output_files

BY = ("arguments", "tool")


def analyze_runs(runtime: Runtime, books: Sequence[RunStore], by: str = BY[0], seed: int = 0) -> ExperimentAnalysis:
    """Answer what these runs can be asked; of a single one also what the branches beside it say."""
    taste = ComparisonOptions(action_by_tool if by == "tool" else _group_by_tool, runtime.program_path)
    many = len(books) > 1
    questions = [
        each for book in books for each in sample_questions(book, taste, prefix=f"../{book.name}/" if many else "")
    ]
    questions += branch_questions(books if many else list_run_family(runtime, books[0]), taste)
    questions += session_questions(books)
    with optional_import():
        return analyze_questions(questions, seed)


def list_run_family(runtime: Runtime, book: RunStore) -> list[RunStore]:
    """A run with every branch of it that lies beside it, and the branches of those."""
    beside, _ = lab.open_readable_runs(runtime, book.path.parent)
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


def build_divergence_tree(runtime: Runtime, books: Sequence[RunStore], by: str = BY[0]) -> PathNode:
    """Lay what the sessions of these runs did over each other."""
    return build_path_tree(
        iter_action_paths(
            books, ComparisonOptions(action_by_tool if by == "tool" else _group_by_tool, runtime.program_path)
        )
    )


def write_analysis(runtime: Runtime, book: RunStore, analysis: ExperimentAnalysis) -> Path:
    """Write the analysis of a run beside its other pages; what a person wrote there is left alone."""
    if not any(group.n for answer in analysis.answers for group in answer.groups):
        raise NotFound(
            f"{book.name} has no samples, replicates or branches", hint=f"flightlog lab resample {book.name}"
        )
    path = book.path / NAME
    if path.exists() and MARK not in path.read_text("utf-8", "replace"):
        raise Conflict(f"{NAME} of {book.name} was written by a person", hint=f"rename it first: {path}")
    write_output_files(
        book.path,
        [
            OutputFile(
                NAME,
                Tier.PRIVATE,
                render_analysis(book.name, analysis, build_divergence_tree(runtime, list_run_family(runtime, book))),
            )
        ],
    )
    return path


def _group_by_tool(action: Action) -> Action:
    return action
