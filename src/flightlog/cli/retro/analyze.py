"""`flightlog retro`: analyze, apply, undo, patterns, show, draw, preferences, feedback."""

import shlex
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import (
    Progress,
    json_option,
    print_json,
    print_outcome,
    print_table,
    spell_hint,
)
from flightlog.cli.retro.feedback import feedback
from flightlog.cli.retro.issues import find_store, open_store
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.text import make_inert, one_line, pluralize, suggest_name

if TYPE_CHECKING:
    from flightlog.model.runtime import Runtime
    from flightlog.retro.service import RetroSession
    from flightlog.retro.state import Pattern, Recommendation, RetroAnalysis
    from flightlog.retro.store import RetroStore

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


retro.add_command(feedback)


@retro.command(epilog="Example: flightlog retro export.zip --resume")
@click.argument("export", required=False)
@click.option(
    "--resume", is_flag=False, flag_value=_LATEST, default="", metavar="[ID]",
    help="Resume a retro session.",
)  # fmt: skip
@click.option(
    "--sessions/--no-sessions", default=True, help="Also analyze recorded agent sessions."
)
@click.option("--draw/--no-draw", default=True, help="Write charts to outputs/.")
@click.option(
    "--analyst", default="", metavar="WHO",
    help="Agent that judges the findings: claude-code, scripted or 'COMMAND {prompt}'.",
)  # fmt: skip
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
        analysis = source.load_analysis(runtime, store)
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


@retro.command(epilog="Example: flightlog retro apply instruction-1f2e3d4c5b")
@click.argument("recommendation", metavar="ID")
@click.option("--yes", is_flag=True, help="Write without asking.")
@json_option("Print the change as JSON.")
def apply(recommendation: str, *, yes: bool, as_json: bool) -> None:
    """Show a recommendation's change and make it.

    Asks at a terminal; elsewhere it writes only with --yes.
    """
    from flightlog.retro import actions, service

    runtime, store = open_runtime(), find_store()
    one = service.find_recommendation(store, recommendation)
    actions.check_not_applied(store, one)
    change = actions.plan_action(store, one, service.agent_homes(runtime))
    if change is None:
        raise Invalid(f"it changes no file: {one.id}", hint=one.action.command)
    if change.after == change.before:
        raise Invalid(f"the file has it already: {change.path}", hint="flightlog retro analyze")
    if not as_json:
        click.echo(make_inert(change.diff), nl=False)
    is_agreed = yes or (
        not as_json and sys.stdin.isatty() and click.confirm("Write this?", default=True, err=True)
    )
    if is_agreed:
        with store.lock():
            actions.apply_recommendation(store, one, change)
    fields = {"id": one.id, "file": str(change.path), "diff": change.diff, "is_written": is_agreed}
    undo = f"written to {change.path}; to take it back: flightlog retro undo {one.id}"
    ask = f"not written; to write it: flightlog retro apply {one.id} --yes"
    print_outcome(fields, undo if is_agreed else ask, as_json=as_json)
    if not is_agreed and not sys.stdin.isatty():
        hint = f"flightlog retro apply {one.id} --yes"
        raise Invalid("writing needs a terminal or --yes", hint=hint)


@retro.command(epilog="Example: flightlog retro undo instruction-1f2e3d4c5b")
@click.argument("recommendation", metavar="ID")
@json_option("Print the file as JSON.")
def undo(recommendation: str, *, as_json: bool) -> None:
    """Take back a recommendation's change.

    Refuses if the file was changed in that place since; what was changed elsewhere in it stays.
    """
    from flightlog.retro.actions import undo_recommendation

    store = find_store()
    with store.lock():
        applied = undo_recommendation(store, recommendation)
    fields = {"id": applied.recommendation, "file": applied.file, "is_written": True}
    print_outcome(fields, f"restored: {applied.file}", as_json=as_json)


@retro.command(epilog="Example: flightlog retro patterns --kind friction")
@click.option(
    "--kind", default="", help="Only this kind: friction, outcome, cost, instruction again …"
)
@json_option()
def patterns(*, kind: str, as_json: bool) -> None:
    """List the patterns of the last analysis."""
    chosen = [pattern for pattern in _load_last_analysis().patterns if kind in ("", pattern.kind)]
    print_json(chosen) if as_json else _print_patterns(chosen)


@retro.command(epilog="Example: flightlog retro show corrections")
@click.argument("what")
@json_option()
def show(what: str, *, as_json: bool) -> None:
    """Show a recommendation, pattern or evidence."""
    from flightlog.retro.actions import show_action
    from flightlog.retro.service import agent_homes, read_evidence

    runtime = open_runtime()
    analysis = _load_last_analysis()
    matches = [pattern for pattern in analysis.patterns if pattern.id.startswith(what)]
    shown = [one for one in analysis.recommendations if one.id == what]
    if shown:
        recommendation = show_action(find_store(), shown[0], agent_homes(runtime))
        print_json(recommendation) if as_json else _print_recommendation(recommendation)
        return
    if len(matches) == 1:
        print_json(matches[0]) if as_json else _print_pattern(matches[0])
        return
    rows = read_evidence(runtime, find_store(), what, Path(runtime.cwd))
    if as_json:
        print_json([dict(zip(("address", "role", "text"), row, strict=True)) for row in rows])
        return
    for address, role, text in rows:
        click.echo(f"{make_inert(address)} {make_inert(role)}\n{make_inert(text)}\n")


@retro.command(epilog="Example: flightlog retro draw --format md")
@click.option(
    "--format", "form", type=click.Choice(["html", "md"]), default="html",
    help="Charts or Markdown.",
)  # fmt: skip
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
        hint = f"one of: {', '.join(CHARTS)}"
        raise Invalid(f'no such chart: "{one_line(values, 40)}"', hint=hint)
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
    costs = [reply.cost_usd]
    click.echo(f"\n{make_inert(reply.text)}\n", err=err)
    while sys.stdin.isatty() and (
        prompt := click.prompt("you", default="", show_default=False, err=True).strip()
    ):
        reply = conversation.send_prompt(prompt, analysis)
        costs.append(reply.cost_usd)
        click.echo(f"\n{make_inert(reply.text)}\n", err=err)
    known = [usd for usd in costs if usd is not None]
    cost = f"{sum(known):.2f} USD" if len(known) == len(costs) else "cost unknown"
    line = f"{cost}, saved in {reply.path}; to continue: flightlog retro --resume"
    print_outcome(reply, f"{line} --analyst {shlex.quote(analyst[0])}", as_json=False)
    return apply_analyst_names(store, analysis)


def _load_last_analysis() -> "RetroAnalysis":
    analysis = find_store().load_analysis()
    if analysis is None:
        raise NotFound("no analysis yet", hint="flightlog retro analyze")
    return analysis


def _print_analysis(analysis: "RetroAnalysis") -> None:
    from flightlog.retro.state import describe_action, describe_applied, describe_trend

    click.echo(spell_hint(" ".join(analysis.summary)))
    kind = ""
    for number, one in enumerate(analysis.recommendations, 1):
        if one.kind != kind:
            kind = one.kind
            click.secho(f"\n{kind.replace('-', ' ').capitalize()}", bold=True)
        click.echo(make_inert(f"{number:>2}. {one.title}"))
        facts = (one.detail, describe_trend(one), f"evidence: {' '.join(one.evidence[:3])}")
        for fact in filter(None, (*facts, spell_hint(describe_action(one)))):
            click.echo(make_inert(f"    {fact}"))
    for applied in analysis.applied:
        click.echo(make_inert(f"\n{describe_applied(applied)}"))
    patterns, one_pattern = "flightlog retro patterns", "flightlog retro show ID"
    line = f"\nall patterns: {patterns}; one with its evidence: {one_pattern}"
    print_outcome(analysis, line, as_json=False)


def _print_recommendation(one: "Recommendation") -> None:
    from flightlog.retro.state import describe_action, describe_trend

    action = spell_hint(describe_action(one))
    facts = (one.title, one.detail, describe_trend(one), one.action.diff, action)
    click.echo(make_inert("\n".join(filter(None, facts)) + "\n"))
    quotes = (*one.quotes, *[""] * (len(one.evidence) - len(one.quotes)))
    rows = [(at, one_line(text, 100)) for at, text in zip(one.evidence, quotes, strict=False)]
    print_table(("address", "words"), rows)


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
