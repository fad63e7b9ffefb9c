"""`flightlog retro`: analyze, patterns, show, draw, preferences, feedback."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import Progress, json_option, print_json, print_outcome, print_table
from flightlog.cli.retro.issues import find_store, open_store
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.text import make_inert, one_line, pluralize, suggest_name

if TYPE_CHECKING:
    from flightlog.model.runtime import Runtime
    from flightlog.retro.service import RetroSession
    from flightlog.retro.state import Pattern, RetroAnalysis
    from flightlog.retro.store import RetroStore

_KEPT = json_option("Print the path of the feedback as JSON.")
_SHOWN = 15  # findings after an analysis; `retro patterns` lists all
_PROBLEMS_MAX = 5  # damaged conversations described after an analysis
_LATEST = "latest"


class _DefaultCommandGroup(click.Group):
    """A group with a default command: `flightlog retro EXPORT` means `retro analyze EXPORT`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            is_export = args[0].startswith("-") or Path(args[0]).exists()
            if is_export or suggest_name(args[0], self.commands, "-") == "-":
                args = ["analyze", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultCommandGroup, epilog="Example: flightlog retro export.zip")
def retro() -> None:
    """Analyze past sessions.

    `flightlog retro EXPORT` is short for `flightlog retro analyze EXPORT`.
    """


@retro.group(epilog="Example: flightlog retro feedback rate topic-1f2e3d4c5b 4")
def feedback() -> None:
    """Give feedback on findings. Findings with a low rating count less in the next analysis."""


@feedback.command(epilog="Example: flightlog retro feedback rate activity down --comment 'I know'")
@click.argument("pattern")
@click.argument("rating")
@click.option("--comment", default="", help="Reason for the rating.")
@_KEPT
def rate(pattern: str, rating: str, *, comment: str, as_json: bool) -> None:
    """Rate a finding from 1 to 5, or up or down."""
    from flightlog.retro.service import record_rating

    _print_saved(record_rating(open_store(), pattern, rating, comment), as_json=as_json)


@feedback.command(
    epilog="Example: flightlog retro feedback answer overall_value 'It saves a morning'"
)
@click.argument("question")
@click.argument("response")
@click.option(
    "--rating", default=None, type=click.IntRange(1, 5), help="Rating in addition to the answer."
)
@_KEPT
def answer(question: str, response: str, *, rating: int | None, as_json: bool) -> None:
    """Answer a feedback question.

    QUESTION: insight_accuracy, insight_actionable, missing_patterns, most_useful, overall_value.
    """
    from flightlog.retro.service import record_answer

    _print_saved(record_answer(open_store(), question, response, rating), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback gap 'It misses my Rust work'")
@click.argument("description")
@click.option("--category", default="other", show_default=True, help="Category of what was missed.")
@click.option(
    "--priority",
    default="medium",
    show_default=True,
    type=click.Choice(["low", "medium", "high"]),
    help="Importance of the gap.",
)
@_KEPT
def gap(description: str, *, category: str, priority: str, as_json: bool) -> None:
    """Report something the analysis missed."""
    from flightlog.retro.service import record_gap

    _print_saved(record_gap(open_store(), description, category, priority), as_json=as_json)


@feedback.command("import", epilog="Example: flightlog retro feedback import feedback.json")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@_KEPT
def import_feedback(path: str, *, as_json: bool) -> None:
    """Import ratings saved by an HTML artifact."""
    from flightlog.retro.service import import_ratings

    _print_saved(import_ratings(open_store(), Path(path)), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback summary --json")
@json_option()
def summary(*, as_json: bool) -> None:
    """Summarize all feedback."""
    from flightlog.retro.events import FeedbackGiven
    from flightlog.retro.state import summarize_feedback

    history = find_store().iter_events()
    totals = summarize_feedback(event for event in history if isinstance(event, FeedbackGiven))
    if as_json:
        print_json(totals)
        return
    average = "" if totals.average_rating is None else f"{totals.average_rating:.2f}"
    gaps, low_rated = totals.gaps_by_category, totals.low_rated_patterns
    rows = [
        ("ratings", str(totals.ratings)),
        ("average", average),
        ("answers", str(totals.answers)),
        *((f"gap: {name}", str(count)) for name, count in gaps.items()),
        *((f"low: {name}", f"{rating:.1f}") for name, rating in low_rated.items()),
    ]
    print_table(("feedback", ""), rows)


def _print_saved(path: Path, *, as_json: bool) -> None:
    print_outcome({"path": str(path)}, f"saved: {path}", as_json=as_json)


@retro.command(epilog="Example: flightlog retro export.zip --resume")
@click.argument("export", required=False)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    default="",
    metavar="[ID]",
    help="Resume a retro session.",
)
@click.option(
    "--sessions/--no-sessions", default=True, help="Also analyze recorded agent sessions."
)
@click.option("--draw/--no-draw", default=True, help="Write charts to outputs/.")
@click.option(
    "--analyst",
    default="",
    metavar="WHO",
    help="Agent that judges the findings: claude-code, scripted or 'COMMAND {prompt}'.",
)
@click.option("--say", default="", help="Prompt for the analyst, sent after the findings.")
@json_option("Print the analysis as JSON.")
def analyze(  # noqa: PLR0913 - options
    export: str | None,
    *,
    resume: str,
    sessions: bool,
    draw: bool,
    analyst: str,
    say: str,
    as_json: bool,
) -> None:
    """Analyze an export and recorded sessions.

    Reads what is new in EXPORT and in the recordings, then analyzes everything read so far. No
    model is called without --analyst. At a terminal you can go on talking to the analyst; an empty
    line ends it.
    """
    from flightlog.loop.links import find_agent_sessions
    from flightlog.retro import service
    from flightlog.sources.chat_exports.reader import check_export

    runtime = open_runtime()
    if export is None and resume and Path(resume).exists():
        export, resume = resume, _LATEST
    path = None if export is None else check_export(Path(export))
    store = find_store()
    with service.run_session(runtime, store, resume) as session:
        progress = Progress("reading")
        loops = cache(find_agent_sessions) if sessions else None
        source = service.read_new_input(runtime, store, path, progress, loops)
        progress.close()
        analysis = source.load_analysis(store, runtime.zone)
        is_due = draw and source.anything
        artifact = service.draw_artifact(store, analysis, runtime.zone) if is_due else None
        if analyst:
            analysis = _talk_with_analyst(
                runtime, store, (analyst, session), analysis, say=say, err=as_json
            )
    if as_json:
        print_json(analysis)
        return
    for problem in source.counts.problems[:_PROBLEMS_MAX]:
        click.echo(make_inert(f"damaged: {problem}"), err=True)
    counts = source.counts
    read = f"{counts.new} new, {counts.unchanged} known, {counts.damaged_files} damaged"
    click.echo(f"session {session.id}: {read}", err=True)
    if not analyst:
        _print_analysis(analysis)
    if artifact is not None:
        click.echo(f"\ncharts: {artifact}", err=True)


@retro.command(epilog="Example: flightlog retro patterns --kind topic")
@click.option(
    "--kind", default="", help="Only this kind: topic, friction, outcome, cost, question again …"
)
@json_option()
def patterns(*, kind: str, as_json: bool) -> None:
    """List the findings of the last analysis."""
    analysis = _load_last_analysis()
    chosen = [pattern for pattern in analysis.patterns if kind in ("", pattern.kind)]
    print_json(chosen) if as_json else _print_patterns(chosen)


@retro.command(epilog="Example: flightlog retro show topic-1f2e3d4c5b")
@click.argument("what")
@json_option()
def show(what: str, *, as_json: bool) -> None:
    """Show a finding or an evidence address."""
    from flightlog.retro.service import read_evidence

    patterns = _load_last_analysis().patterns
    matches = [pattern for pattern in patterns if pattern.id.startswith(what)]
    if len(matches) == 1:
        print_json(matches[0]) if as_json else _print_pattern(matches[0])
        return
    runtime = open_runtime()
    rows = read_evidence(runtime, find_store(), what, Path(runtime.cwd))
    if as_json:
        print_json([dict(zip(("address", "role", "text"), row, strict=True)) for row in rows])
        return
    for address, role, text in rows:
        click.echo(f"{make_inert(address)} {make_inert(role)}\n{make_inert(text)}\n")


@retro.command(epilog="Example: flightlog retro draw --format md")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md"]),
    default="html",
    help="Charts or Markdown.",
)
@json_option("Print the path as JSON.")
def draw(*, form: str, as_json: bool) -> None:
    """Write the last analysis to outputs/. The HTML file works offline."""
    from flightlog.retro.service import draw_artifact

    analysis = _load_last_analysis()
    store = open_store()
    with store.lock():
        path = draw_artifact(store, analysis, open_runtime().zone, form)
    print_json({"artifact": str(path)}) if as_json else click.echo(str(path))


@retro.group(epilog="Example: flightlog retro prefs set focus_areas databases,testing")
def prefs() -> None:
    """Show or set analysis preferences."""


@prefs.command("set", epilog="Example: flightlog retro prefs set excluded_topics health")
@click.argument("name", type=click.Choice(["focus_areas", "excluded_topics", "preferred_viz"]))
@click.argument("values")
@json_option("Print the preference as JSON.")
def set_prefs(name: str, values: str, *, as_json: bool) -> None:
    """Set a preference.

    Separate several values by commas; an empty value removes the preference.
    """
    import msgspec

    from flightlog.retro.events import PreferenceSet
    from flightlog.retro.layout import CHARTS

    chosen = tuple(value.strip() for value in values.split(",") if value.strip())
    if name == "preferred_viz" and not set(chosen) <= set(CHARTS):
        raise Invalid(
            f'no such chart: "{one_line(values, 40)}"', hint=f"one of: {', '.join(CHARTS)}"
        )
    event = msgspec.convert({"type": "Preferred", "name": name, "values": chosen}, PreferenceSet)
    open_store().journal.append(event, durable=True)
    line = "it applies from the next analysis: flightlog retro analyze"
    print_outcome({"name": name, "values": chosen}, line, as_json=as_json)


@prefs.command("show", epilog="Example: flightlog retro prefs show --json")
@json_option()
def show_prefs(*, as_json: bool) -> None:
    """Show the current preferences."""
    from flightlog.retro.store import read_preferences

    preferences = read_preferences(find_store().iter_events())
    if as_json:
        print_json(preferences)
        return
    rows = [
        ("focus_areas", ", ".join(preferences.focus_areas)),
        ("excluded_topics", ", ".join(preferences.excluded_topics)),
        ("preferred_viz", preferences.preferred_viz or ""),
    ]
    print_table(("preference", "value"), rows)


@retro.command(epilog="Example: flightlog retro retain --dry-run")
@click.option("--dry-run", is_flag=True, help="Show the logs without removing them.")
@click.option("--yes", is_flag=True, help="Remove old logs.")
@json_option()
def retain(*, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove logs older than 90 days. Outputs, issues, drafts and feedback are kept."""
    from flightlog.retro import logs

    store = find_store()
    actions = logs.logs_due(store.root, store.now_ms())
    if actions and not dry_run:
        if not yes:
            problem = f"{pluralize(len(actions), 'log')} would be removed"
            raise Invalid(problem, hint="flightlog retro retain --yes")
        logs.remove_old_logs(store.root, store.now_ms())
    if as_json:
        print_json(actions)
        return
    rows = [(action.item.name, str(action.age_days)) for action in actions]
    print_table(("log", "days old"), rows, right=(1,))


def _talk_with_analyst(  # noqa: PLR0913 - the parts of one conversation
    runtime: "Runtime",
    store: "RetroStore",
    analyst: "tuple[str, RetroSession]",
    analysis: "RetroAnalysis",
    *,
    say: str,
    err: bool,
) -> "RetroAnalysis":
    """Print the findings unless `err`, then the analyst's replies, until an empty line is typed."""
    from flightlog.retro.analysis.analyze import apply_analyst_names
    from flightlog.retro.service import ask_analyst, make_analyst

    if not err:
        _print_analysis(analysis)
    conversation = make_analyst(runtime, store, *analyst)
    reply = ask_analyst(conversation, analysis, say)
    usd = reply.cost_usd
    click.echo(f"\n{make_inert(reply.text)}\n", err=err)
    while sys.stdin.isatty() and (
        prompt := click.prompt("you", default="", show_default=False, err=True).strip()
    ):
        reply = conversation.send_prompt(prompt, analysis)
        usd += reply.cost_usd
        click.echo(f"\n{make_inert(reply.text)}\n", err=err)
    line = f"{usd:.2f} USD, saved in {reply.path}; to continue: flightlog retro --resume"
    print_outcome(reply, f"{line} --analyst {analyst[0]}", as_json=False)
    return apply_analyst_names(store, analysis)


def _load_last_analysis() -> "RetroAnalysis":
    analysis = find_store().load_analysis()
    if analysis is None:
        raise NotFound("no analysis yet", hint="flightlog retro analyze")
    return analysis


def _print_analysis(analysis: "RetroAnalysis") -> None:
    meta = analysis.meta
    span = f", {meta.date_range[0]} to {meta.date_range[1]}" if meta.date_range else ""
    conversations = f"{pluralize(meta.conversation_count, 'conversation')}{span}"
    click.echo(f"{conversations}; {pluralize(len(analysis.patterns), 'finding')}\n")
    _print_patterns(analysis.patterns[:_SHOWN])
    if len(analysis.patterns) > _SHOWN:
        patterns, one = "flightlog retro patterns", "flightlog retro show ID"
        line = f"\nall findings: {patterns}; one with its evidence: {one}"
        print_outcome(analysis, line, as_json=False)


def _print_pattern(pattern: "Pattern") -> None:
    click.echo(make_inert(f"{pattern.kind}: {pattern.label}\n{pattern.detail}\n"))
    rows = [(evidence.address, one_line(evidence.text, 100)) for evidence in pattern.evidence]
    print_table(("address", "words"), rows)


def _print_patterns(patterns: "Sequence[Pattern]") -> None:
    rows = [
        (item.id, item.kind, one_line(item.title, 60), item.detail, f"{item.confidence:.2f}")
        for item in patterns
    ]
    print_table(("id", "kind", "finding", "detail", "confidence"), rows, right=(4,))
