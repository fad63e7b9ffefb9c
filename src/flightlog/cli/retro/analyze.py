"""Analyze, patterns, show, feedback."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import Progress, json_option, print_json, print_outcome, print_table
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.text import make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.model.runtime import Runtime
    from flightlog.retro.state import Pattern, RetroAnalysis
    from flightlog.retro.store import RetroStore

_KEPT = json_option("Print the path of what was kept as JSON.")
_SHOWN = 15
_LATEST = "latest"
_HEADS = ("id", "kind", "finding", "detail", "sure")


@click.group(epilog="Example: flightlog retro feedback rate topic-1f2e3d4c5b 4")
def feedback() -> None:
    """Rate findings, answer questions, report gaps; low-rated findings count less next time."""


@feedback.command(epilog="Example: flightlog retro feedback rate activity down --comment 'I know'")
@click.argument("pattern")
@click.argument("rating")
@click.option("--comment", default="", help="Why.")
@_KEPT
def rate(pattern: str, rating: str, *, comment: str, as_json: bool) -> None:
    """Rate a finding from 1 to 5, or up or down."""
    from flightlog.retro.service import record_rating
    from flightlog.retro.store import open_retro_store

    _print_saved(record_rating(open_retro_store(open_runtime()), pattern, rating, comment), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback answer overall_value 'It saves a morning'")
@click.argument("question")
@click.argument("response")
@click.option("--rating", default=None, type=click.IntRange(1, 5), help="A number beside the words.")
@_KEPT
def answer(question: str, response: str, *, rating: int | None, as_json: bool) -> None:
    """Answer insight_accuracy, insight_actionable, missing_patterns, most_useful or overall_value."""
    from flightlog.retro.service import record_answer
    from flightlog.retro.store import open_retro_store

    _print_saved(record_answer(open_retro_store(open_runtime()), question, response, rating), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback gap 'It misses my Rust work'")
@click.argument("description")
@click.option("--category", default="other", show_default=True, help="What kind of thing was missed.")
@click.option(
    "--priority",
    default="medium",
    show_default=True,
    type=click.Choice(["low", "medium", "high"]),
    help="How much it matters.",
)
@_KEPT
def gap(description: str, *, category: str, priority: str, as_json: bool) -> None:
    """Report what analysis did not find."""
    from flightlog.retro.service import record_gap
    from flightlog.retro.store import open_retro_store

    _print_saved(record_gap(open_retro_store(open_runtime()), description, category, priority), as_json=as_json)


@feedback.command("import", epilog="Example: flightlog retro feedback import feedback.json")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@_KEPT
def import_feedback(path: str, *, as_json: bool) -> None:
    """Take in the ratings an artifact saved."""
    from flightlog.retro.service import import_ratings
    from flightlog.retro.store import open_retro_store

    _print_saved(import_ratings(open_retro_store(open_runtime()), Path(path)), as_json=as_json)


@feedback.command(epilog="Example: flightlog retro feedback summary --json")
@json_option()
def summary(*, as_json: bool) -> None:
    """Sum up all feedback."""
    from flightlog.retro.events import FeedbackGiven
    from flightlog.retro.state import summarize_feedback as summed_up
    from flightlog.retro.store import find_retro_store

    runtime = open_runtime()
    told = summed_up(each for each in find_retro_store(runtime).iter_events() if isinstance(each, FeedbackGiven))
    if as_json:
        print_json(told)
        return
    rows = [("ratings", str(told.ratings)), ("average", "" if told.average is None else f"{told.average:.2f}")]
    rows += [("answers", str(told.answers)), *((f"gap: {name}", str(count)) for name, count in told.gaps.items())]
    rows += [(f"low: {name}", f"{average:.1f}") for name, average in told.low_rated.items()]
    print_table(("feedback", ""), rows)


def _print_saved(path: Path, *, as_json: bool) -> None:
    print_outcome({"kept": str(path)}, f"kept: {path}", as_json=as_json)


class _DefaultCommandGroup(click.Group):
    """A group whose first word may be an export: `flightlog retro EXPORT` is `flightlog retro analyze EXPORT`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            args = ["analyze", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultCommandGroup, epilog="Example: flightlog retro export.zip")
def retro() -> None:
    """Look back: patterns, pictures, feedback; `flightlog retro EXPORT` analyses an export."""


@retro.command(epilog="Example: flightlog retro export.zip --resume")
@click.argument("export", required=False)
@click.option("--resume", is_flag=False, flag_value=_LATEST, default="", metavar="[ID]", help="Go on with a session.")
@click.option("--sessions/--no-sessions", default=True, help="Look at recorded agent sessions too.")
@click.option("--draw/--no-draw", default=True, help="Write the pictures into outputs/.")
@click.option(
    "--analyst", default="", metavar="WHO", help="Let an agent judge: claude-code, scripted, or 'COMMAND {prompt}'."
)
@click.option("--say", default="", help="Say this to the analyst, after the findings or in a resumed session.")
@json_option("Print the analysis as JSON.")
def analyze(  # noqa: PLR0913 - options
    export: str | None, *, resume: str, sessions: bool, draw: bool, analyst: str, say: str, as_json: bool
) -> None:
    """Read what is new in EXPORT and in the recordings, and analyse all of it; no model is asked without --analyst.

    At a terminal the conversation with the analyst goes on until an empty line.
    """
    from flightlog.retro.service import current_session, draw_artifact, end_session, read_new_input, start_session
    from flightlog.retro.store import find_retro_store, open_retro_store
    from flightlog.sources.chat_exports.reader import check_export

    runtime = open_runtime()
    if export is None and resume and Path(resume).is_file():
        export, resume = resume, _LATEST
    if export is not None:
        check_export(Path(export))
    if resume == _LATEST:
        current_session(find_retro_store(runtime))  # like a missing export, refused before anything is made
    room = open_retro_store(runtime)
    with room.lock():
        session = start_session(runtime, room, resume)
        watch = Progress("reading")
        found = read_new_input(runtime, room, Path(export) if export else None, watch, sessions=sessions)
        watch.close()
        analysis = found.load_analysis(room, runtime.zone)
        artifact = draw_artifact(room, analysis, runtime.zone) if draw and found.anything else None
        if analyst:
            tell = partial(click.echo, err=as_json)
            if not as_json:
                _print_analysis(analysis)
            analysis = _talk_with_analyst(runtime, room, (analyst, session), analysis, say=say, tell=tell)
        end_session(runtime, room)
    if as_json:
        print_json(analysis)
        return
    read = found.read
    click.echo(f"session {session}: {read.new} new, {read.known} known, {read.damaged} damaged", err=True)
    if not analyst:
        _print_analysis(analysis)
    if artifact is not None:
        click.echo(f"\npictures: {artifact}", err=True)


@retro.command(epilog="Example: flightlog retro patterns --kind topic")
@click.option(
    "--kind", default="", help="Only this kind: topic, friction, outcome, cost, question again, failure again …"
)
@json_option()
def patterns(*, kind: str, as_json: bool) -> None:
    """Show what the last analysis found."""
    analysis = _load_last_analysis(open_runtime())
    chosen = [pattern for pattern in analysis.patterns if kind in ("", pattern.kind)]
    if as_json:
        print_json(chosen)
        return
    print_table(_HEADS, _pattern_rows(chosen), right=(4,))


@retro.command(epilog="Example: flightlog retro show topic-1f2e3d4c5b")
@click.argument("what")
@json_option()
def show(what: str, *, as_json: bool) -> None:
    """Show a finding with its evidence, or open the place an address names."""
    runtime = open_runtime()
    found = [pattern for pattern in _load_last_analysis(runtime).patterns if pattern.id.startswith(what)]
    if len(found) == 1:
        if as_json:
            print_json(found[0])
            return
        click.echo(make_inert(f"{found[0].kind}: {found[0].label}\n{found[0].detail}\n"))
        print_table(("address", "words"), [(each.address, one_line(each.text, 100)) for each in found[0].evidence])
        return
    from flightlog.retro.service import read_evidence
    from flightlog.retro.store import find_retro_store

    rows = read_evidence(runtime, find_retro_store(runtime), what, Path(runtime.cwd))
    if as_json:
        print_json([{"address": address, "role": role, "text": text} for address, role, text in rows])
        return
    for address, role, text in rows:
        click.echo(f"{make_inert(address)} {make_inert(role)}\n{make_inert(text)}\n")


@retro.command(epilog="Example: flightlog retro draw --format md")
@click.option("--format", "form", type=click.Choice(["html", "md"]), default="html", help="Pictures, or Markdown.")
@json_option("Print the path as JSON.")
def draw(*, form: str, as_json: bool) -> None:
    """Draw the last analysis again into outputs/: one HTML file that works offline, or Markdown."""
    from flightlog.retro.service import draw_artifact
    from flightlog.retro.store import open_retro_store

    runtime = open_runtime()
    analysis = _load_last_analysis(runtime)
    room = open_retro_store(runtime)
    with room.lock():
        path = draw_artifact(room, analysis, runtime.zone, form)
    if as_json:
        print_json({"artifact": str(path)})
        return
    click.echo(str(path))


@retro.group(epilog="Example: flightlog retro prefs set focus_areas databases,testing")
def prefs() -> None:
    """Say what to look at, leave out and draw first."""


@prefs.command("set", epilog="Example: flightlog retro prefs set excluded_topics health")
@click.argument("name", type=click.Choice(["focus_areas", "excluded_topics", "preferred_viz"]))
@click.argument("values")
@json_option("Print the preference as JSON.")
def set_prefs(name: str, values: str, *, as_json: bool) -> None:
    """Set a preference; a comma separates several values, an empty one takes it back."""
    import msgspec

    from flightlog.retro.events import PreferenceSet
    from flightlog.retro.layout import CHARTS
    from flightlog.retro.store import open_retro_store

    said = tuple(value.strip() for value in values.split(",") if value.strip())
    if name == "preferred_viz" and not set(said) <= set(CHARTS):
        raise Invalid(f"no such picture: {values[:40]!r}", hint=f"one of: {', '.join(CHARTS)}")
    open_retro_store(open_runtime()).journal.append(
        msgspec.convert({"type": "Preferred", "name": name, "values": said}, PreferenceSet), durable=True
    )
    talk = "it counts from the next analysis on: flightlog retro analyze"
    print_outcome({"name": name, "values": said}, talk, as_json=as_json)


@prefs.command("show", epilog="Example: flightlog retro prefs show --json")
@json_option()
def show_prefs(*, as_json: bool) -> None:
    """Show the preferences in force."""
    from flightlog.retro.store import find_retro_store, read_preferences

    said = read_preferences(find_retro_store(open_runtime()).iter_events())
    if as_json:
        print_json(said)
        return
    rows = [("focus_areas", ", ".join(said.focus_areas)), ("excluded_topics", ", ".join(said.excluded_topics))]
    print_table(("preference", "value"), [*rows, ("preferred_viz", said.preferred_viz or "")])


@retro.command(epilog="Example: flightlog retro retain --dry-run")
@click.option("--dry-run", is_flag=True, help="Show what would go and change nothing.")
@click.option("--yes", is_flag=True, help="Let old logs go.")
@json_option()
def retain(*, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Let logs older than 90 days go; outputs, issues, drafts and feedback are never touched."""
    from flightlog.retro import logs
    from flightlog.retro.store import find_retro_store

    room = find_retro_store(open_runtime())
    moves = logs.logs_due(room.root, room.now_ms())
    if moves and not dry_run:
        if not yes:
            raise Invalid(f"{pluralize(len(moves), 'log')} would go", hint="flightlog retro retain --yes")
        logs.remove_old_logs(room.root, room.now_ms())
    if as_json:
        print_json(moves)
        return
    print_table(("log", "days old"), [(move.item.name, str(move.age_days)) for move in moves], right=(1,))


retro.add_command(feedback)


def _talk_with_analyst(  # noqa: PLR0913 - who says what to whom
    runtime: "Runtime",
    room: "RetroStore",
    whom: tuple[str, str],
    analysis: "RetroAnalysis",
    *,
    say: str,
    tell: Callable[[str], object],
) -> "RetroAnalysis":
    """Hand over the findings and show what is said; at a terminal go on until an empty line."""
    from flightlog.retro.analysis.analyze import apply_analyst_names
    from flightlog.retro.service import ask_analyst, make_analyst

    sitting = make_analyst(runtime, room, *whom)
    told = ask_analyst(sitting, analysis, say)
    usd = told.usd
    tell(f"\n{make_inert(told.text)}\n")
    while sys.stdin.isatty() and (more := click.prompt("you", default="", show_default=False, err=True).strip()):
        told = sitting.send_prompt(more, analysis)
        usd += told.usd
        tell(f"\n{make_inert(told.text)}\n")
    click.echo(
        f"{usd:.2f} USD, kept in {told.path}; go on with: flightlog retro --resume --analyst {whom[0]}", err=True
    )
    return apply_analyst_names(room, analysis)


def _load_last_analysis(runtime: "Runtime") -> "RetroAnalysis":
    from flightlog.retro.store import find_retro_store

    analysis = find_retro_store(runtime).load_analysis()
    if analysis is None:
        raise NotFound("there is no analysis yet", hint="flightlog retro analyze")
    return analysis


def _print_analysis(analysis: "RetroAnalysis") -> None:
    meta = analysis.meta
    span = f", {meta.date_range[0]} to {meta.date_range[1]}" if meta.date_range else ""
    click.echo(
        f"{pluralize(meta.conversation_count, 'conversation')}{span}; {pluralize(len(analysis.patterns), 'finding')}\n"
    )
    print_table(_HEADS, _pattern_rows(analysis.patterns[:_SHOWN]), right=(4,))
    if len(analysis.patterns) > _SHOWN:
        click.echo("\nall of them: flightlog retro patterns; one with its evidence: flightlog retro show ID", err=True)


def _pattern_rows(found: "Sequence[Pattern]") -> list[tuple[str, ...]]:
    return [(each.id, each.kind, one_line(each.title, 60), each.detail, f"{each.confidence:.2f}") for each in found]
