"""Tracing: from one thing to everything that belongs to it, nearest first, and broken links.

Two things belong together if they have the same address in a session, or if one names the other. Of
each kind the nearest are listed: at this address, else in the same turn, else in the same session.
An address that is named but not recorded is a broken link.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.addresses import (
    HERE,
    KINDS,
    NEARNESS,
    SAME_COMMIT,
    SAME_SESSION,
    Address,
    TraceLink,
    parse_address,
    relation_between,
)
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.session import Session
from flightlog.model.text import one_line
from flightlog.store.git.history import commit_subject, resolve_commit
from flightlog.tracing.blame import commit_links, steps_behind_commit
from flightlog.tracing.providers import TraceContext, iter_provider_links
from flightlog.views.session.timeline import iter_steps, iter_turns

_HUNK = re.compile(r"(?P<step>[^:]+#\d+\.\d+):(?P<rest>.+)")
_COMMIT = re.compile(r"[0-9a-f]{4,64}|HEAD(?:[~^]\d*)*")
_TITLE_WIDTH = 80  # fits a terminal line with kind and address


class TracedItem(Struct, frozen=True):
    """Something that belongs to the start of a trace, and how near it is."""

    kind: str
    address: str
    title: str
    distance: str


class BrokenLink(Struct, frozen=True):
    """A link without target: what names what, and what is wrong."""

    source: str
    target: str
    reason: str


class Trace(Struct, frozen=True):
    """The start of a trace and everything that belongs to it, in the order of kinds."""

    start: TraceLink
    links: tuple[TracedItem, ...]
    broken_links: tuple[BrokenLink, ...]

    def items_of_kind(self, kind: str) -> list[TracedItem]:
        """Return the items of one kind."""
        return [item for item in self.links if item.kind == kind]


def build_trace(name: str, context: TraceContext) -> Trace:
    """Return everything that belongs to the thing named `name`."""
    start = _add_commit_addresses(context, find_link(name, context))
    broken: list[BrokenLink] = []
    links: list[TraceLink] = []
    for session in _iter_sessions(context, start, broken):
        links += _links_of_session(context, session)
    same = [link for link in links if (link.kind, link.address) == (start.kind, start.address)]
    exact = [link for link in same if link.session_addresses]
    addresses = _resolve_addresses(exact or [start], context)
    named = (_find_provider_links(context, *reference) for reference in start.references)
    links += [link for own in named for link in own]
    if start.kind == "commit":
        links += _find_provider_links(context, start.kind, start.address)
    items = _nearest_items(start, addresses, links)
    further = _links_through_commits(context, start, items)
    links += further
    items = _order_by_kind([*items, *_items_of_same_commit(items, further)])
    listed = {(item.kind, item.address) for item in items}
    checked = [start, *(link for link in links if (link.kind, link.address) in listed)]
    broken += [missing for link in checked for missing in _broken_links(context, link)]
    broken += [BrokenLink("a feature", "", trouble) for trouble in dict.fromkeys(context.troubles)]
    return Trace(start, tuple(items), tuple(dict.fromkeys(broken)))


def find_link(name: str, context: TraceContext) -> TraceLink:
    """Return the only thing called `name`, of any kind or of the kind before a colon."""
    kind, _, rest = name.partition(":")
    if kind not in KINDS or not rest:
        kind, rest = "", name
    fitting = (link for link in _iter_candidates(context, rest) if kind in {"", link.kind})
    links = {(link.kind, link.address): link for link in fitting}
    exact = {key: link for key, link in links.items() if link.address == rest} or links
    if len(exact) > 1 and not kind:  # a commit and its dataset row have the same name
        exact = {key: link for key, link in exact.items() if link.kind != "row"} or exact
    if not exact:
        raise NotFound(f"nothing here is called {name[:80]!r}", hint="flightlog trace --help")
    if len(exact) > 1:
        some = ", ".join(f"{kind}:{address}" for kind, address in list(exact)[:5])
        raise Invalid(f"{len(exact)} things start with {name[:60]!r}", hint=f"write one of: {some}")
    return next(iter(exact.values()))


def _iter_candidates(context: TraceContext, name: str) -> Iterator[TraceLink]:
    hunk = _HUNK.fullmatch(name)
    if hunk is not None:
        yield from _find_hunks(context, hunk["step"], hunk["rest"])
        return
    for provider in context.link_providers:
        yield from provider.find_links(name)
    if context.repository is not None and _COMMIT.fullmatch(name):
        full = resolve_commit(context.repository, name)
        if full:
            yield TraceLink("commit", full, commit_subject(context.repository, full))
    try:
        address = parse_address(name)
        session = context.resolve_session_id(address.session)
        yield _link_for_address(replace(address, session=session))
    except NotFound:
        return
    except Invalid:
        if "#" in name:
            raise


def _link_for_address(address: Address) -> TraceLink:
    kind = "step" if address.step else "turn" if address.turn else "session"
    return TraceLink(kind, str(address), session_addresses=(str(address),))


def _find_hunks(context: TraceContext, step: str, rest: str) -> Iterator[TraceLink]:
    at = parse_address(step)
    at = replace(at, session=context.resolve_session_id(at.session))
    session = context.find_session(at.session)
    edits = context.edits_of_session(session) if session else ()
    prefix = f"{at}:{rest}"
    own = (edit for edit in edits if edit.address.startswith(prefix))
    yield from (TraceLink("hunk", edit.address, session_addresses=(edit.at,)) for edit in own)


def _add_commit_addresses(context: TraceContext, start: TraceLink) -> TraceLink:
    """Return `start` with the addresses of the commits that it names."""
    at = list(start.session_addresses)
    names = list(start.references)
    if start.kind == "commit" or not at:
        names.insert(0, (start.kind, start.address))
    for kind, name in names:
        if kind == "commit" and context.repository is not None:
            full = resolve_commit(context.repository, name)
            at += steps_behind_commit(context, full) if full else []
            rows = (row for row in _find_provider_links(context, "commit", full or name) if not at)
            at += [address for row in rows for address in row.session_addresses]
    return replace(start, session_addresses=tuple(dict.fromkeys(at)))


def _iter_sessions(
    context: TraceContext, start: TraceLink, broken: list[BrokenLink]
) -> Iterator[Session]:
    seen: set[str] = set()
    for at in start.session_addresses:
        try:
            name = context.resolve_session_id(parse_address(at).session)
        except FlightlogError as error:
            broken.append(BrokenLink(f"{start.kind}:{start.address}", at, error.message))
            continue
        session = context.find_session(name) if name not in seen else None
        seen.add(name)
        if session is not None:
            yield session


def _links_of_session(context: TraceContext, session: Session) -> list[TraceLink]:
    edits = context.edits_of_session(session)
    links = [TraceLink("session", session.id, session.title, (session.id,))]
    for subagent, turn in iter_turns(session):
        at = str(Address(session.id, turn.number, 0, subagent))
        links.append(TraceLink("turn", at, turn.text, (at,)))
    links += [
        TraceLink("step", str(at), ", ".join(call.name for call in step.tool_calls), (str(at),))
        for at, step in iter_steps(session)
    ]
    hunks = {edit.address: edit for edit in edits}
    links += [TraceLink("hunk", name, "", (edit.at,)) for name, edit in hunks.items()]
    return [*links, *commit_links(context, session, edits), *iter_provider_links(context, session)]


def _find_provider_links(context: TraceContext, kind: str, address: str) -> list[TraceLink]:
    """Return the links of all providers with this name, or that name it."""
    links = [link for provider in context.link_providers for link in provider.find_links(address)]
    return [
        link
        for link in links
        if link.kind == kind or any(name == address for _, name in link.references)
    ]


def _resolve_addresses(links: Iterable[TraceLink], context: TraceContext) -> list[Address]:
    addresses = []
    for at in (at for link in links for at in link.session_addresses):
        try:
            address = parse_address(at)
            addresses.append(replace(address, session=context.resolve_session_id(address.session)))
        except FlightlogError:
            continue
    return addresses


def _nearest_items(
    start: TraceLink, addresses: Sequence[Address], links: Iterable[TraceLink]
) -> list[TracedItem]:
    best: dict[tuple[str, str], TracedItem] = {}
    for link in links:
        near = HERE if _names_each_other(start, link) else _nearest_relation(addresses, link)
        key = (link.kind, link.address)
        if near and key != (start.kind, start.address):
            known = best.get(key)
            if known is None or NEARNESS.index(near) < NEARNESS.index(known.distance):
                title = one_line(link.title, _TITLE_WIDTH)
                best[key] = TracedItem(link.kind, link.address, title, near)
    return _order_by_kind(list(best.values()))


def _order_by_kind(items: Sequence[TracedItem]) -> list[TracedItem]:
    """Return the nearest items of each kind, in the order of kinds."""
    ordered = []
    for kind in KINDS:
        own = [item for item in items if item.kind == kind]
        nearest = min((NEARNESS.index(item.distance) for item in own), default=0)
        ordered += [item for item in own if NEARNESS.index(item.distance) == nearest]
    return ordered


def _links_through_commits(
    context: TraceContext, start: TraceLink, items: Sequence[TracedItem]
) -> list[TraceLink]:
    """Return other sessions' links to the same commits, if a kind is still missing."""
    if {item.kind for item in items} | {start.kind} >= KINDS.keys():
        return []
    seen = {item.address for item in items if item.kind == "session"} | {
        parse_address(at).session for at in start.session_addresses
    }
    links: list[TraceLink] = []
    for commit in [
        item.address for item in items if item.kind == "commit" and item.distance != SAME_SESSION
    ]:
        steps = [parse_address(at) for at in steps_behind_commit(context, commit)]
        for name in dict.fromkeys(at.session for at in steps if at.session not in seen):
            seen.add(name)
            session = context.find_session(name)
            own = _links_of_session(context, session) if session else []
            links += [link for link in own if _nearest_relation(steps, link) == HERE]
    return links


def _items_of_same_commit(
    items: Sequence[TracedItem], further: Iterable[TraceLink]
) -> list[TracedItem]:
    listed = {(item.kind, item.address) for item in items}
    new = [link for link in further if (link.kind, link.address) not in listed]
    titles = ((link, one_line(link.title, _TITLE_WIDTH)) for link in new)
    return [TracedItem(link.kind, link.address, title, SAME_COMMIT) for link, title in titles]


def _names_each_other(one: TraceLink, other: TraceLink) -> bool:
    names_other = (other.kind, other.address) in one.references
    return names_other or (one.kind, one.address) in other.references


def _nearest_relation(addresses: Sequence[Address], link: TraceLink) -> str:
    relations = set()
    for at in link.session_addresses:
        try:
            relations |= {relation_between(address, parse_address(at)) for address in addresses}
        except Invalid:
            continue
    return next((relation for relation in NEARNESS if relation in relations), "")


def _broken_links(context: TraceContext, link: TraceLink) -> Iterator[BrokenLink]:
    """Yield what a link names that does not exist."""
    by = f"{link.kind}:{link.address}"
    for at in link.session_addresses:
        if why := _describe_missing(context, at):
            yield BrokenLink(by, at, why)
    for kind, name in link.references:
        if kind == "commit":
            exists = context.repository is not None and bool(
                resolve_commit(context.repository, name)
            )
        else:
            exists = bool(_find_provider_links(context, kind, name))
        if not exists:
            reason = "missing" if kind != "commit" else "no such commit in this clone"
            yield BrokenLink(by, f"{kind}:{name}", reason)


def _describe_missing(context: TraceContext, at: str) -> str:
    try:
        address = parse_address(at)
        session = context.find_session(context.resolve_session_id(address.session))
    except FlightlogError as error:
        return error.message
    if session is None:
        return "its recording cannot be read"
    if not address.turn:
        return ""
    if (address.subagent, address.turn) not in {
        (subagent, turn.number) for subagent, turn in iter_turns(session)
    }:
        return "no such turn in the recording"
    exact = str(replace(address, session=session.id))
    if address.step and exact not in {str(step) for step, _ in iter_steps(session)}:
        return "no such step in the recording"
    return ""
