"""The lab pages: runs, samples, certificate, divergence diagram."""

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
from flightlog.web.context import CONTEXT, NavSection, run_blocking
from flightlog.web.pages import lab_step

COLUMN = 210  # pixels
ROW = 46
MARGIN = 14
LABEL_CHARS = 27  # fit in a column
NODES_MAX = 400  # a larger diagram is neither readable nor quick to draw
FILES_SHOWN = 200
RUN = "/lab/runs/{run:[^/]{1,200}}"


class DiagramNode(Struct, frozen=True):
    """A segment of steps that some sessions share; `first` and `last` are step numbers."""

    x: float
    y: float
    radius: float
    first: int
    last: int
    label: str
    title: str
    path_count: int
    ended_addresses: tuple[str, ...]


class DiagramEdge(Struct, frozen=True):
    """A line from one segment to the next."""

    path: str
    weight: float


class Diagram(Struct, frozen=True):
    """A divergence tree with coordinates."""

    width: int
    height: int
    dots: tuple[DiagramNode, ...]
    lines: tuple[DiagramEdge, ...]
    omitted_count: int = 0


class _DiagramSegment(Struct):
    nodes: list[PathNode]
    below: list["_DiagramSegment"]
    column: int
    row: float = 0.0


def draw_diagram(root: PathNode) -> Diagram:
    """Lay out a tree: time to the right, sessions one below the other."""
    root_segment, omitted_count = _join_segments(root)
    segments = list(_iter_segments(root_segment))
    rows = _assign_rows(root_segment)
    total = max(len(root.addresses), 1)
    dots = tuple(_draw_dot(segment, total) for segment in segments)
    lines = tuple(
        _draw_edge(segment, child, total) for segment in segments for child in segment.below
    )
    width = (max(segment.column for segment in segments) + 1) * COLUMN + MARGIN
    return Diagram(width, max(rows, 1) * ROW + MARGIN, dots, lines, omitted_count)


def _join_segments(root: PathNode) -> tuple[_DiagramSegment, int]:
    """Merge steps without a fork into one segment; cut a tree of more than 400 segments."""
    root_segment = _DiagramSegment([root], [], 0)
    queue, count, omitted_count = [root_segment], 1, 0
    while queue:
        segment = queue.pop(0)
        while (
            len(segment.nodes[-1].children) == 1
            and not segment.nodes[-1].ended_addresses
            and segment.nodes[-1].depth
        ):
            segment.nodes.append(segment.nodes[-1].children[0])
        for child in sorted(segment.nodes[-1].children, key=lambda node: -len(node.addresses)):
            if count >= NODES_MAX:
                omitted_count += 1
                continue
            below = _DiagramSegment([child], [], segment.column + 1)
            segment.below.append(below)
            queue.append(below)
            count += 1
    return root_segment, omitted_count


def _assign_rows(root_segment: _DiagramSegment) -> int:
    """Give each leaf a row and each fork the middle of its rows; return the number of rows."""
    rows = 0
    for segment in reversed(list(_iter_segments(root_segment))):
        if not segment.below:
            segment.row = rows
            rows += 1
        else:
            segment.row = sum(child.row for child in segment.below) / len(segment.below)
    return rows


def _iter_segments(root_segment: _DiagramSegment) -> Iterator[_DiagramSegment]:
    stack = [root_segment]
    while stack:
        segment = stack.pop()
        yield segment
        stack += segment.below


def _coordinates_of(segment: _DiagramSegment) -> tuple[float, float]:
    return MARGIN + segment.column * COLUMN, MARGIN + segment.row * ROW + ROW / 3


def _draw_dot(segment: _DiagramSegment, total: int) -> DiagramNode:
    x, y = _coordinates_of(segment)
    first, last = segment.nodes[0], segment.nodes[-1]
    steps = [node for node in segment.nodes if node.depth]
    title = "\n".join(f"{node.depth}: {one_line(node.action.label, 160)}" for node in steps[:20])
    label = one_line(first.action.label, LABEL_CHARS)
    count = len(first.addresses)
    return DiagramNode(
        x,
        y,
        3 + 5 * count / total,
        first.depth,
        last.depth,
        label,
        title,
        count,
        tuple(last.ended_addresses),
    )


def _draw_edge(parent: _DiagramSegment, child: _DiagramSegment, total: int) -> DiagramEdge:
    (x, y), (to_x, to_y) = _coordinates_of(parent), _coordinates_of(child)
    bend = to_x - COLUMN * 0.12
    path = f"M{x:.1f} {y:.1f} H{bend - 14:.1f} C{bend:.1f} {y:.1f} {bend - 8:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    return DiagramEdge(path, 1 + 4 * len(child.nodes[0].addresses) / total)


async def list_runs(request: web.Request) -> web.StreamResponse:
    """List the runs, each with its branches below it."""
    context = request.app[CONTEXT]
    rows, broken = await run_blocking(_run_rows, context.runtime)
    return await context.render_response(
        "lab.html",
        rows=rows,
        broken=broken,
        directory=service.runs_dir(context.runtime).parent.name,
        processes=context.processes.list_processes(),
    )


async def show_run(request: web.Request) -> web.StreamResponse:
    """Show one run."""
    return await request.app[CONTEXT].answer_with(
        "lab_run.html", _run_context, request.match_info["run"]
    )


async def show_divergence(request: web.Request) -> web.StreamResponse:
    """Show where a run and its branches diverge; loaded later, as it reads all transcripts."""
    template = (
        "lab_divergence_part.html" if "HX-Request" in request.headers else "lab_divergence.html"
    )
    return await request.app[CONTEXT].answer_with(
        template, _divergence_context, request.match_info["run"]
    )


async def show_certificate(request: web.Request) -> web.StreamResponse:
    """Show whether the first request of a branch equals the recorded one."""
    name = request.match_info["run"]
    return await request.app[CONTEXT].answer_with(
        "lab_certificate.html", _certificate_context, name
    )


async def show_samples(request: web.Request) -> web.StreamResponse:
    """Show the statistics of a run's samples, replicates and branches."""
    by = "tool" if request.query.get("by") == "tool" else "arguments"
    name = request.match_info["run"]
    return await request.app[CONTEXT].answer_with("lab_samples.html", _samples_context, name, by)


def run_page_meta(store: RunStore) -> dict[str, Any]:
    """Return the metadata of a run."""
    return run_meta(store.name, store.config, store.state)


def _run_rows(runtime: Runtime) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    stores, broken = service.all_runs(runtime)
    return list(iter_run_tree([run_page_meta(store) for store in stores])), broken


def _run_context(runtime: Runtime, name: str) -> dict[str, Any]:
    store = service.find_run(runtime, name)
    run = inspect_address(store, RunAddress(store.name), runtime.program_path)
    family = list_run_family(runtime, store)
    tree = list(iter_run_tree([run_page_meta(relative) for relative in family]))
    return {
        "meta": run,
        "files": run["file_changes"][:FILES_SHOWN],
        "files_more": max(len(run["file_changes"]) - FILES_SHOWN, 0),
        "tree": tree if len(tree) > 1 else [],
        "sampled": sum(1 for _ in iter_sample_dirs(store.path)),
    }


def _divergence_context(runtime: Runtime, name: str) -> dict[str, Any]:
    store = service.find_run(runtime, name)
    root = build_divergence_tree(runtime, list_run_family(runtime, store))
    diagram = draw_diagram(root) if len(root.addresses) > 1 else None
    return {
        "name": store.name,
        "diagram": diagram,
        "forks": sum(1 for _ in iter_forks(root)),
        "segments": list_segments(root),
    }


def _certificate_context(runtime: Runtime, name: str) -> dict[str, Any]:
    store = service.find_run(runtime, name)
    if store.state.branch is None:
        raise NotFound(
            f"{name[:60]} is not a replay", hint=f"flightlog lab replay {name[:60]} --list-turns"
        )
    return {"meta": run_page_meta(store), "replay": replay_meta(store.state)}


def _samples_context(runtime: Runtime, name: str, by: str) -> dict[str, Any]:
    store = service.find_run(runtime, name)
    analysis = analyze_runs(runtime, [store], by)
    shown = [
        answer
        for answer in analysis.questions
        if any(group.n or group.failures for group in answer.groups)
    ]
    labels = {
        share.name: share.label
        for answer in shown
        for group in answer.groups
        for share in group.actions
    }
    return {"name": store.name, "by": by, "analysis": analysis, "answers": shown, "labels": labels}


LAB_SECTION = NavSection(
    "Lab",
    "/lab",
    ("lab", "lab_run", "lab_divergence", "lab_certificate", "lab_samples", *lab_step.TEMPLATES),
    (
        web.get("/lab", list_runs),
        web.get(RUN, show_run),
        web.get(RUN + "/ways", show_divergence),
        web.get(RUN + "/certificate", show_certificate),
        web.get(RUN + "/samples", show_samples),
        *lab_step.lab_step_routes(RUN),
    ),
)
