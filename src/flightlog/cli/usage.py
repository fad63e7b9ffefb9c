"""A usage report on the terminal and as JSON."""

import gc
import sys
from datetime import tzinfo
from typing import Any

from flightlog.views.prices import PRICES_FROM
from flightlog.views.report import Only, UsageReport
from flightlog.views.usage import By, UsageRow
from flightlog.views.wire import as_json as as_json_text
from flightlog.views.wire_usage import truth, unrecorded, usage_row


def tell(by: str, zone: tzinfo | None = None, only: Only | None = None, *, as_json: bool) -> None:
    """Print a usage report, then write down what it took to make it."""
    from flightlog.app import local_zone, open_books

    gc.disable()  # the process ends with the report; looking for cycles would take a tenth of it
    zone = zone or local_zone()
    books = open_books()
    report = books.usage(By(by), zone, only)
    if as_json:
        sys.stdout.write(as_json_text(usage_json(report, str(zone))) + "\n")
    else:
        print_usage(report)
    sys.stdout.flush()
    books.close()


def usage_json(report: UsageReport, zone: str) -> dict[str, Any]:
    """Return the report as every face and test sees it."""
    told = {each.session: truth(each) for each in report.truths} if report.by is By.SESSION else {}
    rows = [{report.by.value: row.key, **usage_row(row), **told.get(row.key, {})} for row in report.rows]
    return {
        "by": report.by.value,
        "total": usage_row(report.total),
        "rows": rows,
        "unrecorded": unrecorded(report.gaps),
        "prices": PRICES_FROM,
        "timezone": zone,
        "damaged_lines": report.damaged,
    }


def print_usage(report: UsageReport) -> None:
    """Print rows, the total, and what the client counted besides."""
    import click

    from flightlog.cli.output import print_table
    from flightlog.model.text import counted, inert

    rows = [_cells(row, row.key[:8] if report.by is By.SESSION else row.key) for row in report.rows if row.responses]
    print_table(
        [report.by.value, "input", "output", "cache read", "cache write", "cost"],
        [*rows, _cells(report.total, "total")],
        right=(1, 2, 3, 4, 5),
    )
    gaps = report.gaps
    if gaps:
        click.echo("\ncounted by the client without a message on record (below zero: recorded, not counted):")
        print_table(
            ["session", "tokens", "cost", "reason"],
            [[gap.session[:8], f"{gap.usage.total:,}", f"${gap.cost_usd:,.4f}", gap.reason.value] for gap in gaps],
            right=(1, 2),
        )
    if report.damaged:
        click.echo(f"{counted(report.damaged, 'damaged span')} not counted: flightlog doctor", err=True)
    if report.total.unpriced:
        click.echo(f"no price known for: {inert(', '.join(report.total.unpriced))}", err=True)
    click.echo(f"prices: {PRICES_FROM['source']}, {PRICES_FROM['date']}", err=True)


def _cells(row: UsageRow, key: str) -> list[str]:
    from flightlog.views.story import money

    use = row.usage
    return [
        key or "?",
        f"{use.input:,}",
        f"{use.output:,}",
        f"{use.cache_read:,}",
        f"{use.cache_write:,}",
        money(row.cost),
    ]
