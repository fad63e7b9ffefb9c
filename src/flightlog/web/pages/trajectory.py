"""A session as an ATIF trajectory to keep: one file of JSON, or several packed into one."""

import io
import zipfile

from aiohttp import web

from flightlog.archive import Archive
from flightlog.views.atif.emit import MAIN, TrajectoryBundle, build_trajectory
from flightlog.web.desk import DESK, run_blocking
from flightlog.web.pages.session import SESSION


async def download_trajectory(request: web.Request) -> web.StreamResponse:
    """Give the trajectory of a session, with its subagents and pictures if it has any."""
    archive = request.app[DESK].data.current_archive()
    name = archive.find_recording(request.match_info["session"]).session
    body, ending, kind = await run_blocking(_pack_files, archive, name)
    kept = {"Content-Disposition": f'attachment; filename="trajectory-{name[:8]}.{ending}"'}
    return web.Response(body=body, content_type=kind, headers=kept)


def _pack_files(archive: Archive, name: str) -> tuple[bytes, str, str]:
    files = dict(_build_bundle(archive, name).iter_files())
    if len(files) == 1:
        return files[MAIN], "json", "application/json"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as pack:
        for path, body in files.items():
            pack.writestr(zipfile.ZipInfo(path), body, zipfile.ZIP_DEFLATED)
    return packed.getvalue(), "zip", "application/zip"


def _build_bundle(archive: Archive, name: str) -> TrajectoryBundle:
    return build_trajectory(archive.read_session(name), known=archive.thread_contexts(name))


ROUTES = (web.get(SESSION + "/trajectory", download_trajectory),)
