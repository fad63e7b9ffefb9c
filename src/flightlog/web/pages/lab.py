"""The lab pages: runs, samples, certificate, divergence diagram."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from aiohttp import web
from markupsafe import Markup
from msgspec import Struct

from flightlog.lab import service
from flightlog.lab.events import BranchCreated
from flightlog.lab.experiment.service import experiment_of, list_experiments
from flightlog.lab.experiment.store import ExperimentStore
from flightlog.lab.inspect import RunAddress, align_steps, inspect_address, iter_run_tree
from flightlog.lab.layout import run_meta
from flightlog.lab.replay.certificate import replay_meta
from flightlog.lab.resample.layout import iter_sample_dirs
from flightlog.lab.run_reader import RunSession, trees_of
from flightlog.lab.statistics.divergence import PathNode, iter_forks, list_segments
from flightlog.lab.statistics.service import analyze_runs, build_divergence_tree, list_run_family
from flightlog.lab.store import RunStore
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import Step
from flightlog.model.text import one_line
from flightlog.model.usage import sum_costs
from flightlog.web.context import CONTEXT, NavSection, make_page
from flightlog.web.pages import lab_step

COLUMN = 210  # pixels
ROW = 46
MARGIN = 14
LABEL_CHARS = 27  # fit in a column
NODES_MAX = 400  # a larger diagram is neither readable nor quick to draw
FILES_SHOWN = 200
PAIRS_MAX = 200  # turns of a comparison on one page
FIRST_SESSION = "session_01"  # of a branch, the one that goes back
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
    pairs = [(segment, child) for segment in segments for child in segment.below]
    lines = tuple(_draw_edge(segment, child, total) for segment, child in pairs)
    width = (max(segment.column for segment in segments) + 1) * COLUMN + MARGIN
    return Diagram(width, max(rows, 1) * ROW + MARGIN, dots, lines, omitted_count)


def _join_segments(root: PathNode) -> tuple[_DiagramSegment, int]:
    """Merge steps without a fork into one segment; cut a tree of more than 400 segments."""
    root_segment = _DiagramSegment([root], [], 0)
    queue, count, omitted_count = [root_segment], 1, 0
    while queue:
        segment = queue.pop(0)
        last = segment.nodes[-1]
        while len(last.children) == 1 and not last.ended_addresses and last.depth:
            last = last.children[0]
            segment.nodes.append(last)
        for child in sorted(last.children, key=lambda node: -len(node.addresses)):
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
    radius, ended = 3 + 5 * count / total, tuple(last.ended_addresses)
    return DiagramNode(x, y, radius, first.depth, last.depth, label, title, count, ended)


def _draw_edge(parent: _DiagramSegment, child: _DiagramSegment, total: int) -> DiagramEdge:
    (x, y), (to_x, to_y) = _coordinates_of(parent), _coordinates_of(child)
    bend = to_x - COLUMN * 0.12
    path = f"M{x:.1f} {y:.1f} H{bend - 14:.1f} C{bend:.1f} {y:.1f} {bend - 8:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    return DiagramEdge(path, 1 + 4 * len(child.nodes[0].addresses) / total)


def run_page_meta(store: RunStore) -> dict[str, Any]:
    """Return the metadata of a run."""
    return run_meta(store.name, store.config, store.state)


def _runs_context(request: web.Request) -> dict[str, Any]:
    context = request.app[CONTEXT]
    stores, broken = service.all_runs(context.runtime)
    metas = [run_page_meta(store) for store in stores]
    shown = [meta for meta in metas if "replay_turn" in meta or not experiment_of(meta["tags"])]
    folder = service.runs_dir(context.runtime)
    return {
        "rows": list(iter_run_tree(shown)),
        "broken": broken,
        "experiments": [path.name for path in list_experiments(folder)],
        "directory": folder.parent.name,
        "processes": context.processes.list_processes(),
    }


def _experiment_context(request: web.Request) -> dict[str, Any]:
    """Return the report of an experiment; its cells open the deciding step."""
    context, name = request.app[CONTEXT], request.match_info["experiment"]
    runtime, root = context.runtime, context.root
    paths = {path.name: path for path in list_experiments(service.runs_dir(runtime))}
    if name not in paths:
        raise NotFound(f"no such experiment: {name[:60]!r}", hint="flightlog lab experiment status")
    from flightlog.lab.experiment.report import (  # noqa: PLC0415 - numpy takes 0.1 s
        ReportCell,
        render_html,
        report_experiment,
    )

    store = ExperimentStore(paths[name], runtime)

    def link(cell: ReportCell) -> str:
        return f"{root}/lab/runs/{quote(cell.run)}/1/{cell.deciding_turn}"

    body = render_html(report_experiment(store), store.results, link)
    return {"name": store.name, "body": Markup(body)}  # noqa: S704 - escaped by its template


def _find_run(request: web.Request) -> tuple[Runtime, RunStore]:
    runtime = request.app[CONTEXT].runtime
    return runtime, service.find_run(runtime, request.match_info["run"])


def _run_context(request: web.Request) -> dict[str, Any]:
    runtime, store = _find_run(request)
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


def _divergence_context(request: web.Request) -> dict[str, Any]:
    """Return where a run and its branches diverge; loaded later, as it reads all transcripts."""
    runtime, store = _find_run(request)
    root = build_divergence_tree(runtime, list_run_family(runtime, store))
    return {
        "name": store.name,
        "diagram": draw_diagram(root) if len(root.addresses) > 1 else None,
        "forks": sum(1 for _ in iter_forks(root)),
        "segments": list_segments(root),
    }


def _certificate_context(request: web.Request) -> dict[str, Any]:
    """Return whether the first request of a branch equals the recorded one."""
    _, store, _ = _find_branch(request)
    return {"meta": run_page_meta(store), "replay": replay_meta(store.state)}


def _find_branch(request: web.Request) -> tuple[Runtime, RunStore, BranchCreated]:
    runtime, store = _find_run(request)
    if store.state.branch is None:
        name = request.match_info["run"][:60]
        hint = f"flightlog lab replay {name} --list-turns"
        raise NotFound(f"{name} is not a replay", hint=hint)
    return runtime, store, store.state.branch


class ComparedStep(Struct, frozen=True):
    """The steps of both sides at one turn; a side that has ended has None."""

    turn: int
    original: Step | None
    rerun: Step | None
    is_same: bool
    has_same_results: bool


def _comparison_context(request: web.Request) -> dict[str, Any]:
    """Return what a branch did beside what the original did from the same turn on."""
    runtime, store, branch = _find_branch(request)
    source = service.find_run(runtime, branch.source_run)
    programs = runtime.program_path
    original = _read_steps(source, branch.source_session_dir, programs)[branch.turn - 1 :]
    rerun = _read_steps(store, FIRST_SESSION, programs)
    aligned = align_steps(original, rerun, first=branch.turn)
    pairs = [
        ComparedStep(row["turn"], left, right, row["is_same"], row["has_same_results"])
        for row, (left, right) in zip(aligned["steps"], zip_longest(original, rerun), strict=True)
    ]
    sessions = run_page_meta(source)["sessions"]
    source_dir = branch.source_session_dir
    source_meta = next(one for one in sessions if one["session_dir"] == source_dir)
    meta = run_page_meta(store)
    return {
        "meta": meta,
        "replay": replay_meta(store.state),
        "pairs": pairs[:PAIRS_MAX],
        "pairs_more": max(len(pairs) - PAIRS_MAX, 0),
        "first_divergence": aligned["first_divergence"],
        "sides": (source_meta, meta["sessions"][0]),
        "spent": tuple(sum_costs(step.cost for step in side) for side in (original, rerun)),
        "lengths": (len(original), len(rerun)),
    }


def _read_steps(store: RunStore, session_dir: str, programs: str) -> list[Step]:
    planned = next(one for one in store.planned_sessions() if one.session_dir == session_dir)
    return list(RunSession(store, planned, trees_of(store, programs)).own_steps())


def _samples_context(request: web.Request) -> dict[str, Any]:
    runtime, store = _find_run(request)
    by = "tool" if request.query.get("by") == "tool" else "arguments"
    analysis = analyze_runs(runtime, [store], by)
    shown = [
        answer
        for answer in analysis.questions
        if any(group.n or group.failures for group in answer.groups)
    ]
    groups = [group for answer in shown for group in answer.groups]
    labels = {share.name: share.label for group in groups for share in group.actions}
    return {"name": store.name, "by": by, "analysis": analysis, "answers": shown, "labels": labels}


async def show_divergence(request: web.Request) -> web.StreamResponse:
    """Show the divergence diagram, as a part of the run's page or as a page of its own."""
    part = "_part" if "HX-Request" in request.headers else ""
    return await make_page(f"lab_divergence{part}.html", _divergence_context)(request)


LAB_SECTION = NavSection(
    "Lab",
    "/lab",
    (
        *"lab lab_experiment lab_run lab_divergence lab_certificate lab_compare".split(),
        "lab_samples",
        *lab_step.TEMPLATES,
    ),
    (
        web.get("/lab", make_page("lab.html", _runs_context)),
        web.get(
            "/lab/experiments/{experiment:[^/]{1,200}}",
            make_page("lab_experiment.html", _experiment_context),
        ),
        web.get(RUN, make_page("lab_run.html", _run_context)),
        web.get(RUN + "/ways", show_divergence),
        web.get(RUN + "/certificate", make_page("lab_certificate.html", _certificate_context)),
        web.get(RUN + "/compare", make_page("lab_compare.html", _comparison_context)),
        web.get(RUN + "/samples", make_page("lab_samples.html", _samples_context)),
        *lab_step.lab_step_routes(RUN),
    ),
)
