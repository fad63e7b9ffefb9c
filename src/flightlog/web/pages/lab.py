"""The lab: the runs of the project the server was started in, branches as a tree, certificates, samples. Reads only."""

from typing import Any

from aiohttp import web

from flightlog.app import lab_pages as app
from flightlog.app import lab_statistics
from flightlog.lab.book import RunStore
from flightlog.lab.inspect import RunAddress, inspect_address
from flightlog.lab.kin import iter_run_tree
from flightlog.lab.layout import run_meta
from flightlog.lab.replaying.meta import replay_meta
from flightlog.lab.resampling.layout import iter_sample_dirs
from flightlog.lab.statistics.divergence import iter_forks, list_segments
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.web.desk import DESK, run_blocking
from flightlog.web.family import NavSection
from flightlog.web.pages import lab_step
from flightlog.web.pictures import draw_diagram

FILES_SHOWN = 200
RUN = "/lab/runs/{run:[^/]{1,200}}"


async def list_runs(request: web.Request) -> web.StreamResponse:
    """List the runs, each with its branches below it."""
    desk = request.app[DESK]
    rows, broken = await run_blocking(_run_rows, desk.runtime)
    return await desk.render_response(
        "lab.html",
        rows=rows,
        broken=broken,
        where=app.runs_dir(desk.runtime).parent.name,
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
    books, broken = app.all_runs(runtime)
    return list(iter_run_tree([run_page_meta(book) for book in books])), broken


def _run_context(runtime: Runtime, name: str) -> dict[str, Any]:
    book = app.find_run(runtime, name)
    told = inspect_address(book, RunAddress(book.name), runtime.program_path)
    family = lab_statistics.list_run_family(runtime, book)
    tree = list(iter_run_tree([run_page_meta(each) for each in family]))
    return {
        "meta": told,
        "files": told["file_changes"][:FILES_SHOWN],
        "files_more": max(len(told["file_changes"]) - FILES_SHOWN, 0),
        "tree": tree if len(tree) > 1 else [],
        "sampled": sum(1 for _ in iter_sample_dirs(book.path)),
    }


def _divergence_context(runtime: Runtime, name: str) -> dict[str, Any]:
    book = app.find_run(runtime, name)
    root = lab_statistics.build_divergence_tree(runtime, lab_statistics.list_run_family(runtime, book))
    picture = draw_diagram(root) if len(root.places) > 1 else None
    return {
        "name": book.name,
        "drawing": picture,
        "parted": sum(1 for _ in iter_forks(root)),
        "partings": list_segments(root),
    }


def _certificate_context(runtime: Runtime, name: str) -> dict[str, Any]:
    book = app.find_run(runtime, name)
    if book.state.branch is None:
        raise NotFound(f"{name[:60]} is not a replay", hint=f"flightlog lab replay {name[:60]} --list-turns")
    return {"meta": run_page_meta(book), "replay": replay_meta(book.state)}


def _samples_context(runtime: Runtime, name: str, by: str) -> dict[str, Any]:
    book = app.find_run(runtime, name)
    analysis = lab_statistics.analyze_runs(runtime, [book], by)
    shown = [each for each in analysis.answers if any(group.n or group.failed for group in each.groups)]
    labels = {share.name: share.label for each in shown for group in each.groups for share in group.actions}
    return {"name": book.name, "by": by, "analysis": analysis, "answers": shown, "labels": labels}


FAMILY = NavSection(
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
