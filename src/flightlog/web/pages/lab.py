"""Runs, samples, certificate, divergence diagram."""

from collections.abc import Iterator
from typing import Any

from aiohttp import web
from msgspec import Struct

from flightlog.lab import service
from flightlog.lab.inspect import RunAddress, inspect_address, iter_run_tree
from flightlog.lab.layout import run_meta
from flightlog.lab.replay.certificate import replay_meta
from flightlog.lab.resample.layout import iter_sample_dirs
from flightlog.lab.statistics.divergence import PathNode, iter_forks, list_segments
from flightlog.lab.statistics.service import analyze_runs, build_divergence_tree, list_run_family
from flightlog.lab.store import RunStore
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.text import one_line
from flightlog.web.context import DESK, NavSection, run_blocking
from flightlog.web.pages import lab_step

COLUMN = 210
ROW = 46
MARGIN = 14
LABEL_CHARS = 27
NODES_MAX = 400
FILES_SHOWN = 200
RUN = "/lab/runs/{run:[^/]{1,200}}"


class DiagramNode(Struct, frozen=True):
    """A stretch of steps that some ways have in common; `first` and `last` are their numbers."""

    x: float
    y: float
    radius: float
    first: int
    last: int
    label: str
    title: str
    ways: int
    ends: tuple[str, ...]


class DiagramEdge(Struct, frozen=True):
    """From one stretch to the next."""

    path: str
    weight: float


class Diagram(Struct, frozen=True):
    """A tree, laid out."""

    width: int
    height: int
    dots: tuple[DiagramNode, ...]
    lines: tuple[DiagramEdge, ...]
    left_out: int = 0


class _DiagramSegment(Struct):
    nodes: list[PathNode]
    below: list["_DiagramSegment"]
    column: int
    row: float = 0.0


def draw_diagram(root: PathNode) -> Diagram:
    """Lay a tree out: time to the right, ways one below the other."""
    top, left_out = _join_stretches(root)
    every = list(_iter_stretches(top))
    rows = _assign_rows(top)
    most = max(len(root.places), 1)
    dots = tuple(_draw_dot(each, most) for each in every)
    lines = tuple(_draw_edge(each, child, most) for each in every for child in each.below)
    width = (max(each.column for each in every) + 1) * COLUMN + MARGIN
    return Diagram(width, max(rows, 1) * ROW + MARGIN, dots, lines, left_out)


def _join_stretches(root: PathNode) -> tuple[_DiagramSegment, int]:
    """Join what follows without a choice into one stretch; a tree too large to look at is cut."""
    top = _DiagramSegment([root], [], 0)
    waiting, count, left_out = [top], 1, 0
    while waiting:
        each = waiting.pop(0)
        while len(each.nodes[-1].below) == 1 and not each.nodes[-1].ends and each.nodes[-1].depth:
            each.nodes.append(each.nodes[-1].below[0])
        for child in sorted(each.nodes[-1].below, key=lambda node: -len(node.places)):
            if count >= NODES_MAX:
                left_out += 1
                continue
            below = _DiagramSegment([child], [], each.column + 1)
            each.below.append(below)
            waiting.append(below)
            count += 1
    return top, left_out


def _assign_rows(top: _DiagramSegment) -> int:
    """Give each end a row, and whatever leads there the middle of its rows; return how many there are."""
    rows = 0
    for each in reversed(list(_iter_stretches(top))):
        if not each.below:
            each.row = rows
            rows += 1
        else:
            each.row = sum(child.row for child in each.below) / len(each.below)
    return rows


def _iter_stretches(top: _DiagramSegment) -> Iterator[_DiagramSegment]:
    waiting = [top]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += each.below


def _coordinates_of(each: _DiagramSegment) -> tuple[float, float]:
    return MARGIN + each.column * COLUMN, MARGIN + each.row * ROW + ROW / 3


def _draw_dot(each: _DiagramSegment, most: int) -> DiagramNode:
    x, y = _coordinates_of(each)
    first, last = each.nodes[0], each.nodes[-1]
    steps = [node for node in each.nodes if node.depth]
    title = "\n".join(f"{node.depth}: {one_line(node.action.label, 160)}" for node in steps[:20])
    label = one_line(first.action.label, LABEL_CHARS)
    ways = len(first.places)
    return DiagramNode(x, y, 3 + 5 * ways / most, first.depth, last.depth, label, title, ways, tuple(last.ends))


def _draw_edge(one: _DiagramSegment, other: _DiagramSegment, most: int) -> DiagramEdge:
    (x, y), (to_x, to_y) = _coordinates_of(one), _coordinates_of(other)
    bend = to_x - COLUMN * 0.12
    path = f"M{x:.1f} {y:.1f} H{bend - 14:.1f} C{bend:.1f} {y:.1f} {bend - 8:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    return DiagramEdge(path, 1 + 4 * len(other.nodes[0].places) / most)


async def list_runs(request: web.Request) -> web.StreamResponse:
    """List the runs, each with its branches below it."""
    desk = request.app[DESK]
    rows, broken = await run_blocking(_run_rows, desk.runtime)
    return await desk.render_response(
        "lab.html",
        rows=rows,
        broken=broken,
        where=service.runs_dir(desk.runtime).parent.name,
        errands=desk.errands.list_processes(),
    )


async def show_run(request: web.Request) -> web.StreamResponse:
    """Show one run."""
    return await request.app[DESK].answer_with("lab_run.html", _run_context, request.match_info["run"])


async def show_divergence(request: web.Request) -> web.StreamResponse:
    """Show where the ways of a run and its branches part: every transcript is read for it, so it comes by itself."""
    template = "lab_ways_part.html" if "HX-Request" in request.headers else "lab_ways.html"
    return await request.app[DESK].answer_with(template, _divergence_context, request.match_info["run"])


async def show_certificate(request: web.Request) -> web.StreamResponse:
    """Show whether a branch stands where its source stood."""
    name = request.match_info["run"]
    return await request.app[DESK].answer_with("lab_certificate.html", _certificate_context, name)


async def show_samples(request: web.Request) -> web.StreamResponse:
    """Show what the samples, replicates and branches of a run mean."""
    by = "tool" if request.query.get("by") == "tool" else "arguments"
    name = request.match_info["run"]
    return await request.app[DESK].answer_with("lab_samples.html", _samples_context, name, by)


def run_page_meta(book: RunStore) -> dict[str, Any]:
    """What a run's page says of it."""
    return run_meta(book.name, book.config, book.state)


def _run_rows(runtime: Runtime) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    books, broken = service.all_runs(runtime)
    return list(iter_run_tree([run_page_meta(book) for book in books])), broken


def _run_context(runtime: Runtime, name: str) -> dict[str, Any]:
    book = service.find_run(runtime, name)
    told = inspect_address(book, RunAddress(book.name), runtime.program_path)
    family = list_run_family(runtime, book)
    tree = list(iter_run_tree([run_page_meta(each) for each in family]))
    return {
        "meta": told,
        "files": told["file_changes"][:FILES_SHOWN],
        "files_more": max(len(told["file_changes"]) - FILES_SHOWN, 0),
        "tree": tree if len(tree) > 1 else [],
        "sampled": sum(1 for _ in iter_sample_dirs(book.path)),
    }


def _divergence_context(runtime: Runtime, name: str) -> dict[str, Any]:
    book = service.find_run(runtime, name)
    root = build_divergence_tree(runtime, list_run_family(runtime, book))
    picture = draw_diagram(root) if len(root.places) > 1 else None
    return {
        "name": book.name,
        "drawing": picture,
        "parted": sum(1 for _ in iter_forks(root)),
        "partings": list_segments(root),
    }


def _certificate_context(runtime: Runtime, name: str) -> dict[str, Any]:
    book = service.find_run(runtime, name)
    if book.state.branch is None:
        raise NotFound(f"{name[:60]} is not a replay", hint=f"flightlog lab replay {name[:60]} --list-turns")
    return {"meta": run_page_meta(book), "replay": replay_meta(book.state)}


def _samples_context(runtime: Runtime, name: str, by: str) -> dict[str, Any]:
    book = service.find_run(runtime, name)
    analysis = analyze_runs(runtime, [book], by)
    shown = [each for each in analysis.answers if any(group.n or group.failed for group in each.groups)]
    labels = {share.name: share.label for each in shown for group in each.groups for share in group.actions}
    return {"name": book.name, "by": by, "analysis": analysis, "answers": shown, "labels": labels}


LAB_SECTION = NavSection(
    "Lab",
    "/lab",
    ("lab", "lab_run", "lab_ways", "lab_certificate", "lab_samples", *lab_step.TEMPLATES),
    (
        web.get("/lab", list_runs),
        web.get(RUN, show_run),
        web.get(RUN + "/ways", show_divergence),
        web.get(RUN + "/certificate", show_certificate),
        web.get(RUN + "/samples", show_samples),
        *lab_step.lab_step_routes(RUN),
    ),
)
