"""The lab: the runs of the project the server was started in, branches as a tree, certificates, samples. Reads only."""

from typing import Any

from aiohttp import web

from flightlog.app import lab_pages as app
from flightlog.app import lab_statistics
from flightlog.lab.book import Book
from flightlog.lab.inspect import Where, inspected
from flightlog.lab.kin import below
from flightlog.lab.layout import run_meta
from flightlog.lab.replaying.meta import replay_meta
from flightlog.lab.resampling.layout import folders
from flightlog.lab.statistics.divergence import outline, partings
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.web.desk import DESK, aside
from flightlog.web.family import Family
from flightlog.web.pages import lab_step
from flightlog.web.pictures import drawn

FILES_SHOWN = 200
RUN = "/lab/runs/{run:[^/]{1,200}}"


async def runs(request: web.Request) -> web.StreamResponse:
    """List the runs, each with its branches below it."""
    desk = request.app[DESK]
    rows, broken = await aside(_runs, desk.runtime)
    return await desk.answer(
        "lab.html", rows=rows, broken=broken, where=app.runs_dir(desk.runtime).parent.name, errands=desk.errands.all()
    )


async def run(request: web.Request) -> web.StreamResponse:
    """Show one run."""
    return await request.app[DESK].answer_with("lab_run.html", _run, request.match_info["run"])


async def ways(request: web.Request) -> web.StreamResponse:
    """Show where the ways of a run and its branches part: every transcript is read for it, so it comes by itself."""
    template = "lab_ways_part.html" if "HX-Request" in request.headers else "lab_ways.html"
    return await request.app[DESK].answer_with(template, _ways, request.match_info["run"])


async def certificate(request: web.Request) -> web.StreamResponse:
    """Show whether a branch stands where its source stood."""
    name = request.match_info["run"]
    return await request.app[DESK].answer_with("lab_certificate.html", _certificate, name)


async def samples(request: web.Request) -> web.StreamResponse:
    """Show what the samples, replicates and branches of a run mean."""
    by = "tool" if request.query.get("by") == "tool" else "arguments"
    name = request.match_info["run"]
    return await request.app[DESK].answer_with("lab_samples.html", _samples, name, by)


def meta_of(book: Book) -> dict[str, Any]:
    """What a run's page says of it."""
    return run_meta(book.name, book.config, book.state)


def _runs(runtime: Runtime) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    books, broken = app.all_runs(runtime)
    return list(below([meta_of(book) for book in books])), broken


def _run(runtime: Runtime, name: str) -> dict[str, Any]:
    book = app.run_named(runtime, name)
    told = inspected(book, Where(book.name), runtime.program_path)
    family = lab_statistics.family(runtime, book)
    tree = list(below([meta_of(each) for each in family]))
    return {
        "meta": told,
        "files": told["file_changes"][:FILES_SHOWN],
        "files_more": max(len(told["file_changes"]) - FILES_SHOWN, 0),
        "tree": tree if len(tree) > 1 else [],
        "sampled": sum(1 for _ in folders(book.path)),
    }


def _ways(runtime: Runtime, name: str) -> dict[str, Any]:
    book = app.run_named(runtime, name)
    root = lab_statistics.divergence(runtime, lab_statistics.family(runtime, book))
    picture = drawn(root) if len(root.places) > 1 else None
    return {
        "name": book.name,
        "drawing": picture,
        "parted": sum(1 for _ in partings(root)),
        "partings": outline(root),
    }


def _certificate(runtime: Runtime, name: str) -> dict[str, Any]:
    book = app.run_named(runtime, name)
    if book.state.branch is None:
        raise NotFound(f"{name[:60]} is not a replay", hint=f"flightlog lab replay {name[:60]} --list-turns")
    return {"meta": meta_of(book), "replay": replay_meta(book.state)}


def _samples(runtime: Runtime, name: str, by: str) -> dict[str, Any]:
    book = app.run_named(runtime, name)
    analysis = lab_statistics.analysed(runtime, [book], by)
    shown = [each for each in analysis.answers if any(group.n or group.failed for group in each.groups)]
    labels = {share.name: share.label for each in shown for group in each.groups for share in group.actions}
    return {"name": book.name, "by": by, "analysis": analysis, "answers": shown, "labels": labels}


FAMILY = Family(
    "Lab",
    "/lab",
    ("lab", "lab_run", "lab_ways", "lab_certificate", "lab_samples", *lab_step.TEMPLATES),
    (
        web.get("/lab", runs),
        web.get(RUN, run),
        web.get(RUN + "/ways", ways),
        web.get(RUN + "/certificate", certificate),
        web.get(RUN + "/samples", samples),
        *lab_step.routes(RUN),
    ),
)
