"""`flightlog lab resample`, `resample-edit`, `resample-session`: send recorded requests again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.lab.inspect import format_usd
from flightlog.cli.options import (
    AS_JSON,
    ON,
    RUNS_DIR,
    SESSION_NUMBER,
    sending_options,
    session_options,
)
from flightlog.cli.output import format_examples, print_json, print_table, spell_hint
from flightlog.model.text import make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.lab.resample.requests import RequestListing


_COUNT = click.option(
    "--count", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Samples per request."
)  # fmt: skip
_MODELS = click.option(
    "--model", "models", multiple=True, help="Model, instead of the recorded one; may be repeated."
)


@click.command(
    epilog=format_examples(
        "flightlog lab resample my-run --request 5 --count 20 --max-budget-usd 2",
        "flightlog lab resample my-run --turn 3 --turn 7 --model claude-opus-5-5",
    )
)
@click.argument("run")
@session_options
@click.option(
    "--request", "requests", type=click.IntRange(1), multiple=True,
    help="Number of a request; may be repeated.",
)  # fmt: skip
@click.option(
    "--turn", "turns", type=click.IntRange(1), multiple=True,
    help="Turn, instead of a request; may be repeated.",
)  # fmt: skip
@_COUNT
@_MODELS
@click.option(
    "--variant", "variants", type=click.IntRange(0), multiple=True,
    help="Variant of the request; 0 is the recorded one; may be repeated.",
)  # fmt: skip
@click.option(
    "--sweep",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with a grid of samples.",
)
@click.option("--list-requests", is_flag=True, help="Only list the requests.")
@click.option("--resume", "resumes", is_flag=True, help="Resume an unfinished batch.")
@click.option("--batch", default="", help="With --resume: id of the batch.")
@click.option(
    "--dry-run", is_flag=True, help="Show the requests and the expected cost; send nothing."
)
@sending_options
@RUNS_DIR
@AS_JSON
def resample(
    run: str, runs_dir: Path, *, list_requests: bool, as_json: bool, **arguments: Any
) -> int:
    """Send recorded requests again.

    Samples are stored beside the recording. Several requests, turns, models or variants make a
    grid. --resume continues a batch that was killed. Exit 1 if a sample has no response.
    """
    from flightlog.lab import service
    from flightlog.lab.resample import service as resample_service
    from flightlog.lab.resample.service import list_unfinished_batches, resample_grid, resume_batch

    runtime = open_runtime(on=arguments["on"])
    store = service.open_run(runtime, runs_dir, run)
    if list_requests:
        listed = resample_service.list_requests(
            runtime, store, arguments["session"], arguments["replicate"] or 0
        )
        print_json(listed) if as_json else _print_requests(listed)
        return 0
    options = _send_options(arguments)
    if arguments["resumes"]:
        given = {name: arguments[name] for name in ("max_budget_usd", "parallel", "per_minute")}
        limits = {name: value for name, value in given.items() if value is not None}
        summary = resume_batch(runtime, store, arguments["batch"], options, limits)
    else:
        sweep = _choose_sweep(arguments)
        options = _merge_limits(options, sweep, arguments["parallel"])
        summary = resample_grid(runtime, store, sweep, options, dry_run=arguments["dry_run"])
    print_json(summary) if as_json else _print_batch(summary, store.path)
    for batch in list_unfinished_batches(runtime, store) if not summary["remaining"] else ():
        command = f"flightlog lab resample {store.name} --resume --batch {batch.name[:8]}"
        left = pluralize(len(batch.remaining_samples), "sample")
        click.echo(spell_hint(f"{left} of an earlier batch left; to continue: {command}"), err=True)
    return int(
        bool(summary["errors"] or summary["remaining"]) and summary["stop_reason"] != "dry run"
    )


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
@click.option(
    "--request", type=click.IntRange(1), default=1, show_default=True, help="Number of the request."
)
@click.option("--dump", is_flag=True, help="Print the request as JSON for editing.")
@click.option(
    "--input", "source", type=click.File("r", encoding="utf-8"),
    help="Edited request; - reads stdin.",
)  # fmt: skip
@click.option(
    "--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set JSON or text at a path."
)
@click.option("--drop-thinking", is_flag=True, help="Remove all thinking blocks.")
@click.option("--label", default="cli-edit", show_default=True, help="Name of the variant.")
@_COUNT
@_MODELS
@sending_options
@RUNS_DIR
@AS_JSON
def resample_edit(run: str, runs_dir: Path, *, dump: bool, as_json: bool, **arguments: Any) -> int:
    """Edit a recorded request and send it.

    Messages, system prompt, tools, results and sampling can be edited. Thinking blocks are signed:
    keep them unchanged or remove them; an edited one is refused.
    """
    from flightlog.lab import service
    from flightlog.lab.resample import requests
    from flightlog.lab.resample.plan import Sweep
    from flightlog.lab.resample.service import dump_request, resample_edited

    runtime = open_runtime(on=arguments["on"])
    store = service.open_run(runtime, runs_dir, run)
    target = (arguments["session"], arguments["replicate"] or 0, arguments["request"])
    if dump:
        print_json(dump_request(store, *target))
        return 0
    if arguments["source"] is None and not arguments["sets"] and not arguments["drop_thinking"]:
        text = "use --dump, or an edit: --input FILE, --set PATH=VALUE, --drop-thinking"
        raise click.UsageError(text)
    source = arguments["source"]
    body = requests.parse_edited_request(source.read()) if source else dump_request(store, *target)
    body = requests.without_thinking(body) if arguments["drop_thinking"] else body
    body = requests.replace_values(body, dict(map(_parse_assignment, arguments["sets"])))
    sweep = Sweep(
        target[0], target[1], (target[2],), models=arguments["models"], count=arguments["count"]
    )
    sent = _send_options(arguments)
    summary = resample_edited(runtime, store, sweep, body, arguments["label"], sent=sent)
    print_json(summary) if as_json else _print_batch(summary, store.path)
    return int(bool(summary["errors"] or summary["remaining"]))


@click.command(
    "resample-session",
    epilog="Example: flightlog lab resample-session my-run --session 2 --count 5",
)
@click.argument("run")
@SESSION_NUMBER
@click.option(
    "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Replicates to add."
)
@click.option(
    "--max-budget-usd",
    type=click.FloatRange(0, min_open=True),
    help="Most to spend on them, in USD.",
)
@ON
@RUNS_DIR
@AS_JSON
def resample_session(run: str, runs_dir: Path, *, as_json: bool, **arguments: Any) -> int:
    """Run a whole session again.

    Adds replicates to RUN with the same files and the same context. `flightlog lab run --resume`
    continues one that was killed. Exit 1 if one of them did not complete.
    """
    from flightlog.cli.lab.inspect import print_run
    from flightlog.cli.lab.run import RunProgress
    from flightlog.lab import service
    from flightlog.lab.layout import run_meta
    from flightlog.lab.resample.service import rerun_session

    runtime = open_runtime(on=arguments["on"])
    store = service.open_run(runtime, runs_dir, run)
    before = {session.session_dir for session in store.planned_sessions()}
    session, count, budget = (arguments[name] for name in ("session", "count", "max_budget_usd"))
    rerun_session(runtime, store, session, count, budget_usd=budget, tell=RunProgress())
    meta = run_meta(store.name, store.config, store.state)
    print_json(meta) if as_json else print_run(meta)
    new = [session for session in meta["sessions"] if session["session_dir"] not in before]
    return int(any(session["stop_reason"] != "completed" for session in new))


def _parse_assignment(assignment: str) -> tuple[str, Any]:
    path, equals, text = assignment.partition("=")
    if not equals or not path:
        raise click.UsageError(f'not PATH=VALUE: "{one_line(assignment, 60)}"')
    try:
        return path, json.loads(text)
    except ValueError:
        return path, text


def _send_options(arguments: dict[str, Any]) -> Any:
    from msgspec.structs import replace

    from flightlog.cli.lab.run import SamplingProgress
    from flightlog.lab.resample.service import SamplingOptions
    from flightlog.lab.resample.state import BatchLimits

    names = ("max_budget_usd", "parallel", "per_minute", "retries", "timeout")
    limits = BatchLimits(*(arguments[name] for name in names))
    limits = replace(limits, parallel=limits.parallel or 8, until_width=arguments["until_width"])
    return SamplingOptions(limits, SamplingProgress(), arguments["base_url"])


def _choose_sweep(arguments: dict[str, Any]) -> Any:
    """Return the grid of samples from --sweep or from the options."""
    from flightlog.lab.resample.plan import Sweep
    from flightlog.lab.resample.service import read_sweep

    if arguments["sweep"] is not None:
        return read_sweep(arguments["sweep"])
    requests = arguments["requests"] if arguments["requests"] or arguments["turns"] else (1,)
    numbers = arguments["variants"]
    return Sweep(
        arguments["session"],
        arguments["replicate"] or 0,
        requests,
        arguments["turns"],
        arguments["models"],
        numbers=tuple(number for number in numbers if number),
        as_recorded=not numbers or 0 in numbers,
        count=arguments["count"],
    )


def _merge_limits(options: Any, sweep: Any, parallel: int | None) -> Any:
    """Return the options with limits from the sweep file where no option sets them."""
    from msgspec.structs import replace

    limits = options.limits
    return replace(
        options,
        limits=replace(
            limits,
            max_budget_usd=limits.max_budget_usd or sweep.max_budget_usd,
            parallel=parallel or sweep.parallel or limits.parallel,
            per_minute=limits.per_minute or sweep.per_minute,
        ),
    )


def _print_requests(listed: "list[RequestListing]") -> None:
    rows = []
    for request in listed:
        numbers = (str(request.request_index), str(request.turn or "-"))
        response = one_line(", ".join(request.tools) or request.stop_reason or "no response", 40)
        sizes = (str(request.message_count), f"{request.size_bytes / 1000:,.0f}")
        counts = (str(request.samples or "-"), str(request.variants or "-"))
        origin = (*numbers, request.agent_context, request.model)
        rows.append((*origin, *sizes, response, format_usd(request.cost_usd), *counts))
    heads = ["request", "turn", "sender", "model", "messages", "kB"]
    heads += ["response", "cost", "samples", "variants"]
    print_table(heads, rows, right=(0, 1, 4, 5, 7, 8, 9))


def _print_batch(summary: dict[str, Any], run: Path) -> None:
    rows = []
    for target in summary["targets"]:
        responses = f"{target['samples']}/{target['count']}"
        errors = str(len(target["errors"]) or "-")
        model = target["model"] or "as recorded"
        rows.append([target["path"], model, responses, errors, format_usd(target["cost_usd"])])
    print_table(["samples in", "model", "responses", "errors", "cost"], rows, right=(2, 3, 4))
    every = (error for target in summary["targets"] for error in target["errors"])
    for error in dict.fromkeys(every):
        click.echo(make_inert(f"error: {one_line(error, 200)}"), err=True)
    cost = format_usd(summary["cost_usd"])
    if "expected_cost_usd" in summary:
        cost = f"about {format_usd(summary['expected_cost_usd'])}"
    click.echo(f"\n{summary['stop_reason']}, {cost}   {make_inert(str(run))}", err=True)
    if summary["remaining"] and summary["stop_reason"] != "dry run":
        left = pluralize(summary["remaining"], "sample")
        command = f"flightlog lab resample {run.name} --resume"
        click.echo(spell_hint(f"{left} left; to continue: {command}"), err=True)
