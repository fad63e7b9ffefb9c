"""Hits of a search on the terminal and as JSON."""

from collections.abc import Sequence
from datetime import tzinfo

import click

from flightlog.archive.finder import SearchResult
from flightlog.cli.output import print_json
from flightlog.model.text import one_line
from flightlog.views.story import format_timestamp
from flightlog.views.story_forms import short_address

EMPTY = 'nothing found; try fewer words, or the beginning of one: "migrat*"'


def print_hits(found: Sequence[tuple[SearchResult, str]], zone: tzinfo, *, as_json: bool) -> None:
    """Print where each hit stands and the passage that matched."""
    if as_json:
        print_json({"hits": [_hit_fields(each, address) for each, address in found]})
        return
    if not found:
        click.echo(EMPTY, err=True)
    for each, address in found:
        when = format_timestamp(each.hit.at_ms or None, zone, "%Y-%m-%d %H:%M")
        place = one_line(each.hit.project, 60)
        at = short_address(address) if address != each.hit.session else ""
        click.echo(f"{each.hit.session[:8]}{at}  {when}  {place}\n    {one_line(each.snippet, 170)}")


def _hit_fields(found: SearchResult, address: str) -> dict[str, object]:
    hit = found.hit
    return {
        "address": address,
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
