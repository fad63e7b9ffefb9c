"""`harness resample | resample-edit | resample-session`: ask a model again what it was asked, as it was or changed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.lab.inspect import format_usd
from flightlog.cli.options import AS_JSON, ON, RUNS_DIR, sending_options, session_options
from flightlog.cli.output import format_examples
from flightlog.model.text import make_inert, one_line

if TYPE_CHECKING:
    from flightlog.lab.resample.requests import RequestListing


_COUNT = click.option("--count", type=click.IntRange(1, 10_000), default=5, show_default=True, help="So many samples.")


@click.command(
    epilog=format_examples(
        "flightlog lab resample my-run --request 5 --count 20 --max-budget-usd 2",
        "flightlog lab resample my-run --turn 3 --turn 7 --model claude-opus-5-5",
    )
)
@click.argument("run")
@session_options
@click.option("--request", "requests", type=click.IntRange(1), multiple=True, help="Which request; may be repeated.")
@click.option(
    "--turn", "turns", type=click.IntRange(1), multiple=True, help="The request of this turn instead; may be repeated."
)
@_COUNT
@click.option("--model", "models", multiple=True, help="Another model than the recorded one; may be repeated.")
@click.option(
    "--variant",
    "variants",
    type=click.IntRange(0),
    multiple=True,
    help="Of this variant; 0 is as recorded; may be repeated.",
)
@click.option("--sweep", type=click.Path(path_type=Path, dir_okay=False), help="A grid from a YAML file.")
@click.option("--list-requests", is_flag=True, help="Only list what can be asked again.")
@click.option("--resume", "resumes", is_flag=True, help="Go on with a batch that was left.")
@click.option("--batch", default="", help="With --resume: which one.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent and about what it costs, and send nothing.")
@sending_options
@RUNS_DIR
@AS_JSON
def resample(run: str, runs_dir: Path, *, list_requests: bool, as_json: bool, **given: Any) -> int:
    """Ask the model of RUN again what it was asked, COUNT times; samples lie beside the recording.

    Several requests, turns, models or variants make a grid. A batch that was killed goes on with --resume.
    Exit 1 when a sample has no answer.
    """
    from flightlog.cli.output import print_json
    from flightlog.lab import service
    from flightlog.lab.resample import service as resample_service
    from flightlog.lab.resample.service import list_unfinished_batches, resample_grid, resume_batch

    runtime = open_runtime(on=given["on"])
    book = service.open_run(runtime, runs_dir, run)
    if list_requests:
        listed = resample_service.list_requests(runtime, book, given["session"], given["replicate"] or 0)
        print_json(listed) if as_json else _print_requests(listed)
        return 0
    sent = _send_options(given)
    if given["resumes"]:
        said = {name: given[name] for name in ("max_budget_usd", "parallel", "per_minute") if given[name] is not None}
        told = resume_batch(runtime, book, given["batch"], sent, said)
    else:
        sweep = _choose_sweep(given)
        told = resample_grid(
            runtime, book, sweep, _merge_limits(sent, sweep, given["parallel"]), dry_run=given["dry_run"]
        )
    print_json(told) if as_json else _print_batch(told, book.path)
    for each in list_unfinished_batches(runtime, book) if not told["left"] else ():
        again = f"flightlog lab resample {book.name} --resume --batch {each.name[:8]}"
        click.echo(
            make_inert(f"{len(each.remaining_samples)} of an earlier batch are left; go on with them: {again}"),
            err=True,
        )
    return int(bool(told["errors"] or told["left"]) and told["stop_reason"] != "dry run")


@click.command(
    "resample-edit",
    epilog=format_examples(
        "flightlog lab resample-edit my-run --request 5 --dump > r.json",
        "flightlog lab resample-edit my-run --request 5 --input r.json --label no-notes",
        "flightlog lab resample-edit my-run --request 5 --set temperature=0 --drop-thinking",
        "flightlog lab resample-edit my-run --set 'messages.-1.content.0.text=Run the tests first.'",
    ),
)
@click.argument("run")
@session_options
@click.option("--request", type=click.IntRange(1), default=1, show_default=True, help="Which request.")
@click.option("--dump", is_flag=True, help="Print the request as JSON, to be edited.")
@click.option(
    "--input", "source", type=click.File("r", encoding="utf-8"), help="The edited request; - is standard input."
)
@click.option("--set", "sets", multiple=True, metavar="PLACE=VALUE", help="Put JSON or text at a place.")
@click.option("--drop-thinking", is_flag=True, help="Leave every thinking block out.")
@click.option("--label", default="cli-edit", show_default=True, help="What the variant is called.")
@_COUNT
@click.option("--model", "models", multiple=True, help="Another model than the recorded one; may be repeated.")
@sending_options
@RUNS_DIR
@AS_JSON
def resample_edit(run: str, runs_dir: Path, *, dump: bool, as_json: bool, **given: Any) -> int:
    """Change one thing in a request of RUN and ask again: messages, system, tools, results, sampling.

    Thinking blocks are signed: keep them as they are or leave them out; an edited one is refused.
    """
    from flightlog.cli.output import print_json
    from flightlog.lab import service
    from flightlog.lab.resample import requests
    from flightlog.lab.resample.plan import Sweep
    from flightlog.lab.resample.service import dump_request, resample_edited

    runtime = open_runtime(on=given["on"])
    book = service.open_run(runtime, runs_dir, run)
    place = (given["session"], given["replicate"] or 0, given["request"])
    if dump:
        print_json(dump_request(book, *place))
        return 0
    if given["source"] is None and not given["sets"] and not given["drop_thinking"]:
        raise click.UsageError("give --dump, or what to change: --input FILE, --set PLACE=VALUE, --drop-thinking")
    body = requests.parse_edited_request(given["source"].read()) if given["source"] else dump_request(book, *place)
    body = requests.without_thinking(body) if given["drop_thinking"] else body
    body = requests.replace_values(body, dict(map(_parse_assignment, given["sets"])))
    sweep = Sweep(place[0], place[1], (place[2],), models=given["models"], count=given["count"])
    told = resample_edited(runtime, book, sweep, body, given["label"], sent=_send_options(given))
    print_json(told) if as_json else _print_batch(told, book.path)
    return int(bool(told["errors"] or told["left"]))


@click.command(
    "resample-session",
    epilog="Example: flightlog lab resample-session my-run --session 2 --count 5",
)
@click.argument("run")
@click.option("--session", type=click.IntRange(1), default=1, show_default=True, help="Which session.")
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="So many more.")
@click.option("--max-budget-usd", type=click.FloatRange(0, min_open=True), help="Spend no more than this on them.")
@ON
@RUNS_DIR
@AS_JSON
def resample_session(run: str, runs_dir: Path, *, as_json: bool, **given: Any) -> int:
    """Run a whole session of RUN again, COUNT times: the same files, the same words before, new replicates.

    `flightlog lab run --resume` goes on with one that was killed. Exit 1 when one of them did not complete.
    """
    from flightlog.cli.lab.inspect import print_run
    from flightlog.cli.lab.run import RunProgress
    from flightlog.cli.output import print_json
    from flightlog.lab import service
    from flightlog.lab.layout import run_meta
    from flightlog.lab.resample.service import rerun_session

    runtime = open_runtime(on=given["on"])
    book = service.open_run(runtime, runs_dir, run)
    before = {each.name for each in book.planned_sessions()}
    rerun_session(
        runtime, book, given["session"], given["count"], budget_usd=given["max_budget_usd"], tell=RunProgress()
    )
    meta = run_meta(book.name, book.config, book.state)
    print_json(meta) if as_json else print_run(meta)
    new = [each for each in meta["sessions"] if each["session_dir"] not in before]
    return int(any(each["stop_reason"] != "completed" for each in new))


def _parse_assignment(written: str) -> tuple[str, Any]:
    place, equals, text = written.partition("=")
    if not equals or not place:
        raise click.UsageError(f"not PLACE=VALUE: {one_line(written, 60)!r}")
    try:
        return place, json.loads(text)
    except ValueError:
        return place, text


def _send_options(given: dict[str, Any]) -> Any:
    from msgspec.structs import replace

    from flightlog.cli.lab.run import SamplingProgress
    from flightlog.lab.resample.service import SamplingOptions
    from flightlog.lab.resample.state import BatchLimits

    limits = BatchLimits(
        given["max_budget_usd"], given["parallel"] or 8, given["per_minute"], given["retries"], given["timeout"]
    )
    limits = replace(limits, until_width=given["until_width"])
    return SamplingOptions(limits, SamplingProgress(), given["base_url"])


def _choose_sweep(given: dict[str, Any]) -> Any:
    """The grid a person means, from a file or from flags."""
    from flightlog.lab.resample.plan import Sweep
    from flightlog.lab.resample.service import read_sweep

    if given["sweep"] is not None:
        return read_sweep(given["sweep"])
    requests = given["requests"] if given["requests"] or given["turns"] else (1,)
    numbers = given["variants"]
    return Sweep(
        given["session"],
        given["replicate"] or 0,
        requests,
        given["turns"],
        given["models"],
        numbers=tuple(each for each in numbers if each),
        as_recorded=not numbers or 0 in numbers,
        count=given["count"],
    )


def _merge_limits(sent: Any, sweep: Any, parallel: int | None) -> Any:
    """A flag counts more than the file."""
    from msgspec.structs import replace

    limits = sent.limits
    return replace(
        sent,
        limits=replace(
            limits,
            max_budget_usd=limits.max_budget_usd or sweep.max_budget_usd,
            parallel=parallel or sweep.parallel or limits.parallel,
            per_minute=limits.per_minute or sweep.per_minute,
        ),
    )


def _print_requests(listed: "list[RequestListing]") -> None:
    from flightlog.cli.output import print_table

    rows = [
        [
            str(each.request),
            str(each.turn or "-"),
            each.context,
            each.model,
            str(each.messages),
            f"{each.bytes / 1000:,.0f}",
            one_line(", ".join(each.tools) or each.stop_reason or "no answer", 40),
            format_usd(each.cost_usd),
            str(each.samples or "-"),
            str(each.variants or "-"),
        ]
        for each in listed
    ]
    heads = ["request", "turn", "asked by", "model", "messages", "kB", "answered with", "cost", "samples", "variants"]
    print_table(heads, rows, right=(0, 1, 4, 5, 7, 8, 9))


def _print_batch(told: dict[str, Any], run: Path) -> None:
    from flightlog.cli.output import print_table

    rows = [
        [
            each["path"],
            each["model"] or "as recorded",
            f"{each['samples']}/{each['count']}",
            str(len(each["errors"]) or "-"),
            format_usd(each["cost_usd"]),
        ]
        for each in told["targets"]
    ]
    print_table(["samples in", "model", "answered", "errors", "cost"], rows, right=(2, 3, 4))
    for error in dict.fromkeys(error for each in told["targets"] for error in each["errors"]):
        click.echo(make_inert(f"error: {one_line(error, 200)}"), err=True)
    cost = f"about {format_usd(told['expected_usd'])}" if "expected_usd" in told else format_usd(told["cost_usd"])
    click.echo(f"\n{told['stop_reason']}, {cost}   {make_inert(str(run))}", err=True)
    if told["left"] and told["stop_reason"] != "dry run":
        click.echo(
            make_inert(f"{told['left']} are left; go on with them: flightlog lab resample {run.name} --resume"),
            err=True,
        )
