"""`flightlog serve` and `flightlog share`.

The command line imports this module by name, because packages of one layer do not import each other.
"""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from flightlog.app.runtime import open_runtime, write_export
from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.session_reader import read_own_usage
from flightlog.archive.sharing import SessionDocument, redact_session
from flightlog.model.addresses import parse_address
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session
from flightlog.model.text import describe_redaction, pluralize
from flightlog.privacy.redactor import Redactor
from flightlog.views.json_output import as_json as to_json
from flightlog.views.json_output import as_json_line
from flightlog.views.session.timeline import all_steps
from flightlog.web.auth import open_browser, web_root
from flightlog.web.share import render_export_page, render_share_page
from flightlog.web.templates import has_vendor, make_environment


@click.command(epilog="Example: flightlog serve --port 8642")
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--read-only", is_flag=True, help="Refuse every request that changes something.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as a line of JSON.")
def serve(*, port: int, no_open: bool, read_only: bool, as_json: bool) -> None:
    """Browse sessions in a local web page. Prints the address, which contains the token."""
    from flightlog.web.server import ServerConfig, run_server  # noqa: PLC0415 - loads every page

    runtime = open_runtime()

    def ready(address: str) -> None:
        line = as_json_line({"url": address, "is_read_only": read_only})
        click.echo(line if as_json else address)
        sys.stdout.flush()
        click.echo("stop with Ctrl-C", err=True)
        if sys.stdout.isatty() and not no_open:
            open_browser(runtime, address)

    if not has_vendor():
        text = "charts and live filters are not installed; in a clone run: make install"
        click.echo(text, err=True)
    config = ServerConfig(runtime, secrets.token_urlsafe(32), web_root(runtime), port, read_only)
    asyncio.run(run_server(config, ready))


@click.command(epilog="Example: flightlog share 2123f2df --output session.html")
@click.argument("session_id")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, instead of stdout.",
)
@click.option("--images", is_flag=True, help="Include images, which are not checked.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the page and the redaction counts as JSON."
)
def share(session_id: str, *, output: Path | None, images: bool, as_json: bool) -> None:
    """Write a session as one redacted HTML page. It works offline.

    Secrets and personal data are always removed. Images are left out: they cannot be checked.
    """
    runtime = open_runtime()
    archive = open_archive(runtime)
    session = archive.read_session(parse_address(session_id).session)
    pictures: list[str] | None = [] if images else None
    document, redactor = redact_session(runtime, archive, session, pictures=pictures)
    page = render_redacted(runtime, document, redactor, pictures or ())
    if output is not None:
        write_export(output, page.value)
    if as_json:
        content = {"html": page.value} if output is None else {"output": str(output)}
        counts = {"secrets": page.secrets, "personal": page.personal}
        removed = {"removed_count": sum(counts.values()), **counts, "images": len(pictures or ())}
        click.echo(to_json({"session": session.id} | removed | content))
        return
    if output is None:
        click.echo(page.value, nl=False)
    else:
        click.echo(f"written: {output}", err=True)
    if pictures:
        text = f"warning: {pluralize(len(pictures), 'image')} included and not checked"
        click.echo(text, err=True)
    text = describe_redaction(page.secrets, page.personal)
    click.echo(f"{text}; review it before you share it", err=True)


def export_html(runtime: Runtime, archive: Archive, session: Session) -> str:
    """Return a session as one complete HTML page; `session export --format html` writes it."""
    steps = all_steps(session)
    names = {call.result_file for step in steps for call in step.tool_calls if call.result_file}
    outputs = {name: archive.read_spilled_output(session.id, name) or "" for name in names}
    templates = make_environment(runtime.zone, runtime.clock.now_ms)
    usage = read_own_usage(archive, session.id)
    document = SessionDocument(session, outputs=outputs, own_usage=usage)
    return render_export_page(document, templates)


def render_redacted(
    runtime: Runtime,
    document: Redacted[SessionDocument],
    redactor: Redactor,
    pictures: Sequence[str] = (),
) -> Redacted[str]:
    """Return the page of a redacted session, for `share` and `session export --redact`."""
    templates = make_environment(runtime.zone, runtime.clock.now_ms)
    return render_share_page(document, redactor, templates, pictures)
