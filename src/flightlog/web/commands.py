"""`flightlog serve` and `flightlog share`: the pages, from the command line.

A face of its own: the command line finds it by name. Nothing of the web extra is imported
before it is known to be there.
"""

import asyncio
import importlib.util
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

import click

from flightlog.app.runtime import open_runtime, write_export
from flightlog.archive.archive import open_archive
from flightlog.model.addresses import parse_address
from flightlog.model.errors import optional_import
from flightlog.model.runtime import Runtime
from flightlog.model.text import describe_redaction
from flightlog.views.json_output import as_json as wire
from flightlog.views.json_output import as_json_line
from flightlog.web.auth import open_browser, web_root


@click.command(epilog="Example: flightlog serve --port 8642")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Listen on this port; 0 takes a free one.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--read-only", is_flag=True, help="Refuse everything that would change something.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as a line of JSON.")
def serve(*, port: int, no_open: bool, read_only: bool, as_json: bool) -> None:
    """Look at sessions in a browser; print the address, which carries the token."""
    runtime = open_runtime()

    def ready(address: str) -> None:
        click.echo(as_json_line({"address": address, "read_only": read_only}) if as_json else address)
        sys.stdout.flush()
        click.echo("stop with Ctrl-C", err=True)
        if sys.stdout.isatty() and not no_open:
            open_browser(runtime, address)

    serve_pages(runtime, port, ready, read_only=read_only)


@click.command(epilog="Example: flightlog share 2123f2df --output session.html")
@click.argument("session_id")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here instead of standard output."
)
@click.option("--json", "as_json", is_flag=True, help="Print how much was removed, and the page, as JSON.")
def share(session_id: str, *, output: Path | None, as_json: bool) -> None:
    """Write a session as one redacted page that works offline; say how much was removed."""
    from flightlog.archive.sharing import redact_session  # noqa: PLC0415 - heavy
    from flightlog.web.share import render_share_page as drawn  # noqa: PLC0415
    from flightlog.web.templates import make_environment  # noqa: PLC0415

    runtime = open_runtime()
    archive = open_archive(runtime)
    told = archive.read_session(parse_address(session_id).session)
    shared = drawn(*redact_session(runtime, archive, told), make_environment(runtime.zone, runtime.clock.now_ms))
    if output is not None:
        write_export(output, shared.value)
    if as_json:
        page = {"html": shared.value} if output is None else {"output": str(output)}
        removed = {"removed": shared.secrets + shared.personal, "secrets": shared.secrets, "personal": shared.personal}
        click.echo(wire({"session": told.id} | removed | page))
        return
    if output is None:
        click.echo(shared.value, nl=False)
    else:
        click.echo(f"written: {output}", err=True)
    said = describe_redaction(shared.secrets, shared.personal)
    click.echo(f"{said}; read it through before you pass it on", err=True)


def serve_pages(runtime: Runtime, port: int, ready: Callable[[str], None], *, read_only: bool = False) -> None:
    """Serve this machine's sessions until interrupted; `ready` is told the address."""
    with optional_import():
        from flightlog.web.server import ServerConfig, run_server  # noqa: PLC0415
        from flightlog.web.templates import has_vendor  # noqa: PLC0415 - an extra

    if not has_vendor():
        click.echo("charts and live filters are not installed; in a clone: make install", err=True)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(
            run_server(ServerConfig(runtime, secrets.token_urlsafe(32), web_root(runtime), port, read_only), ready)
        )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A faster event loop where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415 - optional as well

    return uvloop.new_event_loop
