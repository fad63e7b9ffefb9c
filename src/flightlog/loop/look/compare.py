"""Sessions side by side, any number of them."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from flightlog.loop.look.analysis import analyze_session
from flightlog.loop.look.session import LoopEvent


class LoopColumn(Struct, frozen=True):
    """One session among others."""

    session: str
    status: str
    tasks_completed: int
    tasks: int
    duration_seconds: float
    average_task_seconds: float
    success_rate: float
    errors: int
    breaker_trips: int
    help_requests: int
    human_interventions: int
    iterations: int
    model_calls: int
    tokens: int
    cost_usd: float | None
    brier: float | None


def compare_sessions(sessions: Iterable[tuple[str, Iterable[LoopEvent]]]) -> list[LoopColumn]:
    """Take each session apart and keep what can be compared."""
    columns = []
    for name, told in sessions:
        one = analyze_session(told)
        figures = one.performance
        columns.append(
            LoopColumn(
                session=name,
                status=one.status,
                tasks_completed=sum(task.status == "completed" for task in one.tasks),
                tasks=len(one.tasks),
                duration_seconds=figures["total_duration_seconds"],
                average_task_seconds=figures["average_task_duration"],
                success_rate=figures["success_rate"],
                errors=figures["error_count"],
                breaker_trips=one.breaker_trips,
                help_requests=figures["help_requests"],
                human_interventions=figures["human_interventions"],
                iterations=figures["iterations"],
                model_calls=figures["model_calls"],
                tokens=figures["tokens"],
                cost_usd=figures["cost_usd"],
                brier=one.calibration.brier,
            )
        )
    return columns


def comparison_rows(columns: Sequence[LoopColumn]) -> list[tuple[str, list[str]]]:
    """The rows of a table."""
    names = [name for name in LoopColumn.__struct_fields__ if name != "session"]
    return [(name.replace("_", " "), [_format_cell(getattr(column, name)) for column in columns]) for name in names]


def _format_cell(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
