"""`flightlog demo`: see the real path on a scripted agent, in seconds, on any machine."""

import click

from flightlog.app import open_runtime
from flightlog.cli.output import format_examples, json_option


@click.group(invoke_without_command=True, epilog=format_examples("flightlog demo", "flightlog demo rewind"))
@json_option("Print the recorded session and its usage as JSON.")
@click.pass_context
def demo(context: click.Context, *, as_json: bool) -> None:
    """Let a scripted agent do a small piece of real work, and show what was recorded."""
    runtime = open_runtime()
    if context.invoked_subcommand is not None:
        return
    from datetime import UTC

    from flightlog.app.demo import SEARCHED, perform_demo
    from flightlog.cli.output import print_json
    from flightlog.cli.story import print_story
    from flightlog.cli.usage import print_usage
    from flightlog.model.usage import Breakdown
    from flightlog.usage.report_json import report_json
    from flightlog.views.story import RenderOptions, render_session
    from flightlog.views.story_forms import short_address

    click.echo("a scripted agent works in a directory of its own; nothing of yours is touched", err=True)
    with perform_demo(runtime) as shown:
        told = shown.archive.read_session(shown.session)
        report = shown.archive.usage_report(Breakdown.SESSION, UTC)
    if as_json:
        print_json(
            {"session": told, "usage": report_json(report, "UTC"), "kept_bytes": shown.kept_bytes, "found": shown.found}
        )
        return
    print_story(render_session(told, RenderOptions(runtime.zone)))
    click.echo()
    print_usage(report)
    same = "the same" if shown.same_without_the_agent else "NOT the same"
    click.echo(f"\nkept for good: {shown.kept_bytes:,} bytes; told from our copy alone it is {same}")
    click.echo(
        f"search for {SEARCHED!r}: {', '.join(short_address(address) for address in shown.found) or 'nothing found'}"
    )
    click.echo("\nwhile it ran, `flightlog watch` showed:\n")
    for line in shown.board:
        click.echo(f"  {line}".rstrip())
    click.echo("\nyour own sessions: flightlog up", err=True)


@demo.command(epilog="Example: flightlog demo rewind")
@json_option("Print both ends as JSON.")
def rewind(*, as_json: bool) -> int:
    """An agent gives in at turn 7; go back there, say one sentence, and see both ends side by side.

    Exit 1 when the branch is not exact or its work is not right.
    """
    import msgspec

    from flightlog.app.demo_rewind import ASKED, SAID, TURN, perform_rewind
    from flightlog.cli.lab_progress import RunProgress
    from flightlog.cli.lab_show import print_side_by_side
    from flightlog.cli.output import print_json, print_table

    click.echo("an agent works in a directory of its own, offline; nothing of yours is touched", err=True)
    with perform_rewind(open_runtime(), RunProgress()) as shown:
        told = msgspec.to_builtins(shown)
    certificate = told["replay"]["certificate"] or {}
    ends = [each["sessions"][0] for each in (told["source"], told["branch"])]
    passed = [all(one["passed"] for one in each["verifiers"]) for each in ends]
    if as_json:
        print_json(told)
        return int(certificate.get("verdict") != "exact+prompt" or passed != [False, True])
    click.echo(f"asked: {ASKED}\nback to turn {TURN}, where it was said: {SAID}\n")
    print_side_by_side(told["compared"]["side_by_side"], ["as it went", "from there again"])
    rows = [
        [name, "right" if good else "WRONG", str(end["num_turns"]), f"${end['total_cost_usd'] or 0:.4f}"]
        for name, good, end in zip(("as it went", "from there again"), passed, ends, strict=True)
    ]
    click.echo()
    print_table(["", "total(…)", "turns", "cost"], rows, right=(2, 3))
    replaced = certificate.get("replaced", [])
    client = "Claude Code" if told["agent"] == "claude_code" else "the scripted agent"
    click.echo(f"\ncertificate: {certificate.get('verdict', 'none')}, decided before the first request was sent")
    click.echo(f"  {client}, {certificate.get('method', '')}")
    click.echo(f"  places where the client's own context was another, replaced: {len(replaced)}")
    click.echo("\nyour own runs: flightlog lab replay RUN --list-turns", err=True)
    return int(certificate.get("verdict") != "exact+prompt" or passed != [False, True])
