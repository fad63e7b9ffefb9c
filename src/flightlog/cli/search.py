"""Hits of a search on the terminal and as JSON."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

import click

from flightlog.books import Found
from flightlog.cli.output import print_json
from flightlog.model.text import one_line

EMPTY = 'nothing found; try fewer words, or the beginning of one: "migrat*"'


def print_hits(found: Sequence[Found], zone: tzinfo, *, as_json: bool) -> None:
    """Print where each hit stands and the passage that matched."""
    if as_json:
        print_json({"hits": [_json(each) for each in found]})
        return
    if not found:
        click.echo(EMPTY, err=True)
    for each in found:
        moment = datetime.fromtimestamp(each.hit.at_ms / 1000, tz=UTC).astimezone(zone)
        place = one_line(each.hit.project, 60)
        click.echo(f"{each.hit.session[:8]}  {moment:%Y-%m-%d %H:%M}  {place}\n    {one_line(each.snippet, 170)}")


def _json(found: Found) -> dict[str, object]:
    hit = found.hit
    return {
        "session": hit.session,
        "lane": hit.lane,
        "uuid": hit.uuid,
        "at_ms": hit.at_ms,
        "project": hit.project,
        "path": hit.path,
        "offset": hit.offset,
        "length": hit.length,
        "snippet": found.snippet,
    }
