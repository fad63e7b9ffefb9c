"""How the pages look, kept as pictures at one width, light and dark, and looked at when they change.

Compared as a browser sees them from afar: shrunk to one point for every 16, so that another
machine's letters do not count and a lost panel, a wrong colour or a moved column does.
`make golden` takes the pictures again.
"""

import base64
import json
import os
from pathlib import Path

import pytest
from tools.draw_picture import photograph_session

from support.browser import Browser
from support.pages import running
from support.recordings import FROZEN_CASES, ROOT, config_dir

GOLDEN = Path(__file__).parents[1] / "golden" / "pages"
README_PICTURE = Path(__file__).parents[2] / "docs" / "session.png"
README_PICTURE_BYTES_MAX = 300_000
WIDTH, HEIGHT = 1280, 900
NOW_MS = 1_794_800_000_000
HOUR_S = 3_600
FAR, FAR_SHARE_MAX, MEAN_MAX = 48, 0.006, 4.0

_SHRUNK = """(async (data) => {
  const image = new Image();
  image.src = "data:image/png;base64," + data;
  await image.decode();
  const [width, height] = [image.width / 16, image.height / 16].map(Math.floor);
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const drawing = canvas.getContext("2d");
  drawing.imageSmoothingQuality = "high";
  drawing.drawImage(image, 0, 0, width, height);
  return JSON.stringify([...drawing.getImageData(0, 0, width, height).data].filter((_, at) => at %% 4 < 3));
})(%s)"""


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = config_dir(tmp_path_factory.mktemp("golden"), *FROZEN_CASES)
    for place, file in enumerate(sorted(folder.rglob("*.jsonl"))):
        at = NOW_MS // 1000 - (place + 1) * HOUR_S
        os.utime(file, (at, at))
    with running(folder, clock=lambda: NOW_MS) as served:
        yield served


def session_of(case):
    return next((ROOT / case / "transcripts").glob("*.jsonl")).stem


def difference(browser, one, two):
    """How far two pictures are apart: on average, and the share of points that are another colour."""
    blank = browser.page(100, 100)
    seen = [
        json.loads(blank.js(_SHRUNK % json.dumps(base64.b64encode(picture).decode())))
        for picture in (one, two)
    ]
    assert len(seen[0]) == len(seen[1]), "another size"
    apart = [abs(first - second) for first, second in zip(*seen, strict=True)]
    return sum(apart) / len(apart), sum(distance > FAR for distance in apart) / len(apart)


def is_alike(apart):
    return apart[0] <= MEAN_MAX and apart[1] <= FAR_SHARE_MAX


def picture(browser, pages, path, *, dark=False, **changed):
    page = browser.page(WIDTH, HEIGHT, dark=dark)
    page.go(pages.door)
    if path == "/":
        page.until("document.querySelectorAll('.session').length === 36")
        page.until(
            "document.querySelector('.days') && !document.querySelector('#home [role=status]')"
        )
    else:
        page.go(pages.root + path)
    page.until(
        "!window.Plot || !document.querySelector('.chart') || document.querySelectorAll('.chart svg').length >= 8"
    )
    for name, value in changed.items():
        page.js(f"document.documentElement.style.setProperty('--{name}', {json.dumps(value)})")
    page.js("document.fonts.ready.then(() => new Promise(done => setTimeout(done, 200)))")
    return page.screenshot()


PATHS = {
    "list": "/",
    "session": f"/sessions/{session_of('2.1.325/multi-turn-tools')}",
    "usage": "/usage",
}


@pytest.mark.parametrize("shade", ["light", "dark"])
@pytest.mark.parametrize("name", PATHS)
def test_a_page_looks_like_its_golden_picture(browser, pages, name, shade, tmp_path):
    now = picture(browser, pages, PATHS[name], dark=shade == "dark")
    file = GOLDEN / f"{name}-{shade}.png"
    if os.environ.get("FLIGHTLOG_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(now)

    apart = difference(browser, file.read_bytes(), now)

    (tmp_path / file.name).write_bytes(now)
    summary = f"{apart[0]:.1f} apart on average, {apart[1]:.1%} another colour"
    assert is_alike(apart), f"{summary}: compare {tmp_path / file.name} with {file}"


def test_the_readme_shows_the_session_page_as_it_looks_now(browser, tmp_path):
    now = photograph_session(browser)
    if os.environ.get("FLIGHTLOG_GOLDEN") == "write":
        README_PICTURE.write_bytes(now)

    apart = difference(browser, README_PICTURE.read_bytes(), now)

    (tmp_path / README_PICTURE.name).write_bytes(now)
    assert is_alike(apart), f"{apart}: make picture, or see {tmp_path / README_PICTURE.name}"
    assert README_PICTURE.stat().st_size <= README_PICTURE_BYTES_MAX


def test_the_golden_comparison_forgives_other_letters_and_nothing_else(browser, pages):
    golden = (GOLDEN / "session-light.png").read_bytes()

    letters = difference(browser, golden, picture(browser, pages, PATHS["session"], sans="serif"))
    colour = difference(browser, golden, picture(browser, pages, PATHS["session"], accent="#c00"))
    dark = difference(browser, golden, (GOLDEN / "session-dark.png").read_bytes())
    other = difference(browser, golden, (GOLDEN / "list-light.png").read_bytes())

    assert is_alike(letters)
    assert [is_alike(distances) for distances in (colour, dark, other)] == [False] * 3
