"""Print a usage report as a table or as JSON."""

import sys
from collections.abc import Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from flightlog.agents import agent_label
from flightlog.cli.output import print_rows, print_table, repeat_command
from flightlog.model.addresses import unique_prefixes
from flightlog.model.text import make_inert, pluralize
from flightlog.model.usage import (
    Breakdown,
    Cost,
    CostSource,
    UsageRow,
    format_cost,
    format_tokens,
    format_units,
)
from flightlog.usage.price_table import PRICES_FROM
from flightlog.usage.report import BlockProjection, UsageReport, project_block
from flightlog.usage.report_json import report_json
from flightlog.views.json_output import as_json as as_json_text
from flightlog.views.table_text import TableLayout

if TYPE_CHECKING:
    from collections.abc import Callable

    from flightlog.usage.pipeline import UsagePipeline


BAR_CELLS = 8
_BY_TIME = {Breakdown.DAY, Breakdown.MONTH, Breakdown.BLOCK}
_USAGE_LAYOUT = TableLayout(right=(1, 2, 3, 4, 5), dropped=(6, 4, 3, 1, 2, 7), least={0: 26, 7: 12})


def print_usage_report(
    ask: "Callable[[UsagePipeline], UsageReport]", zone: tzinfo, *, as_json: bool
) -> None:
    """Print the usage report that `ask` returns, then save the index, so that the user does not wait for the disk."""
    from flightlog.app.runtime import open_runtime, open_usage

    pipeline = open_usage()
    report = ask(pipeline)
    needs_titles = report.by is Breakdown.SESSION and not as_json
    if needs_titles:
        pipeline.save()  # so that the list of titles scans nothing again
    is_block = report.by is Breakdown.BLOCK
    block = project_block(report.rows, open_runtime().clock.now_ms()) if is_block else None
    if as_json:
        document = report_json(report, str(zone))
        document |= {"active_block": asdict(block)} if block else {}
        sys.stdout.write(as_json_text(document) + "\n")
    else:
        print_usage(report, _read_titles() if needs_titles else {})
        if block:
            _print_block(block)
    sys.stdout.flush()
    if not needs_titles:
        pipeline.save()


def _read_titles() -> dict[str, str]:
    from flightlog.app.runtime import open_runtime
    from flightlog.archive.archive import open_archive

    summaries = open_archive(open_runtime()).iter_summaries()
    return {summary.session: summary.title for summary in summaries}


def print_usage(report: UsageReport, titles: Mapping[str, str] | None = None) -> None:
    """Print rows, the total, and the differences from the totals that the clients counted.

    Sessions are sorted by cost and shown with their `titles`.
    """
    by_session = report.by is Breakdown.SESSION
    shown = [row for row in report.rows if row.responses]
    if report.by not in _BY_TIME:
        shown.sort(key=lambda row: -(row.cost.usd or 0.0))
    names = unique_prefixes(row.key for row in report.rows) if by_session else {}
    most = max((row.cost.usd or 0.0 for row in shown), default=0.0)
    rows = []
    for row in shown:
        label = agent_label(row.key) if report.by is Breakdown.AGENT else row.key
        cells = _usage_cells(row, names.get(row.key) or label)
        rows.append([*cells, cost_bar(row.cost.usd or 0.0, most), (titles or {}).get(row.key, "")])
    rows.append([*_usage_cells(report.total, "total"), "", ""])
    heads = [report.by.value, "input", "output", "cache read", "cache write", "cost", "", "title"]
    print_rows(heads, rows, _USAGE_LAYOUT)
    if report.gaps:
        _print_gaps(report, names)
    _print_client_units(report)
    _print_uncertainty(report.total, has_estimates=report.has_estimates)
    if report.damaged_lines:
        click.echo("damaged spans may hold more tokens: flightlog doctor", err=True)
    if report.total.unpriced_models:
        line = f"no price known for: {make_inert(', '.join(model or '?' for model in report.total.unpriced_models))}"
        click.echo(line, err=True)
    click.echo(f"prices: {PRICES_FROM['source']}, {PRICES_FROM['date']}", err=True)


def _print_gaps(report: UsageReport, names: Mapping[str, str]) -> None:
    click.echo("\ncounted by the client, but not recorded (negative: recorded, but not counted):")
    rows = []
    for gap in report.gaps:
        name, tokens = names.get(gap.session, gap.session[:8]), f"{gap.usage.total_tokens:,}"
        is_known = gap.cost_usd is not None
        cost = format_cost(Cost(gap.cost_usd, CostSource.TABLE)) if is_known else "unknown"
        rows.append([name, tokens, cost, gap.reason.value])
    print_table(["session", "tokens", "cost", "reason"], rows, right=(1, 2))


def cost_bar(usd: float, most: float) -> str:
    """Return a bar as long as the share of the most expensive row."""
    eighths = round(usd / most * BAR_CELLS * 8) if most > 0 else 0
    whole, part = divmod(max(eighths, int(usd > 0)), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[part].strip()


def _print_block(block: BlockProjection) -> None:
    """Print what the running block will have cost at its end."""
    amounts = f"${block.cost_usd:,.2f} so far, ${block.cost_per_hour_usd:,.2f}/h"
    left = pluralize(block.minutes_left, "minute")
    click.echo(f"active block: {amounts}, about ${block.projected_usd:,.2f} at its end in {left}")


def _print_client_units(report: UsageReport) -> None:
    """Print what clients count instead of dollars; only a report by session reads it."""
    compared = report.reconciliations if report.by is Breakdown.SESSION else ()
    clients = [item.client for item in compared if item.client.known_units]
    rows = [[client.session[:8], ", ".join(format_units(client))] for client in clients]
    if rows:
        click.echo("\ncounted by the client, not in dollars:")
        print_table(["session", "amount"], rows)


def _print_uncertainty(total: UsageRow, *, has_estimates: bool) -> None:
    """Say what of the total is unknown, a lower bound or an estimate."""
    if total.unknown_responses:
        count = pluralize(total.unknown_responses, "response")
        click.echo(f"{count} without recorded usage: tokens and cost unknown", err=True)
    if has_estimates:
        text = f"about {total.estimated_output_tokens:,} more output tokens"
        usd = format_cost(Cost(total.estimated_cost_usd, CostSource.TABLE))
        click.echo(f"estimated from the text, not in the table: {text}, {usd}")
    elif total.cost.lacks_tokens:
        click.echo(f"≥: not all output was recorded: {repeat_command(estimate=True)}", err=True)


def _usage_cells(row: UsageRow, key: str) -> list[str]:
    usage, cost = row.usage, row.cost
    counts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    # Clients that record too little output still record all input.
    known = cost if row.unknown_responses else Cost(cost.usd, cost.source)
    given, read, written = (format_tokens(count, usage, known) for count in counts)
    output = format_tokens(usage.output_tokens, usage, cost)
    return [key or "?", given, output, read, written, format_cost(cost)]
