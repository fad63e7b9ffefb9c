"""Beginning a dataset in a project: what `init --project` offers, and asks a person once.

Writes three things, each marked so that it can be found and taken out again: the tracked directory, the
project's own answer about words in `flightlog.toml`, and a section of `CLAUDE.md` that tells agents.
"""

import tomllib
from pathlib import Path

from flightlog.app import dataset as wiring
from flightlog.app.privacy import SETTINGS, repository_settings
from flightlog.dataset.layout import Place, prepare
from flightlog.model.runtime import Runtime
from flightlog.privacy.trust import open_trust, risky
from flightlog.store import files

BEGIN, END = "<!-- flightlog dataset: begin -->", "<!-- flightlog dataset: end -->"
SECTION = f"""{BEGIN}
## Training rows

This repository collects training rows from agent sessions in `.git-ml/tracked/` (JSON lines, tracked by git).
Shards in `.git-ml/tracked/pending/` are written by a hook after each step. Commit them together with your
work; never edit or merge them by hand.

- `flightlog dataset stats` says what there is, `flightlog dataset check` what is wrong with it.
- `flightlog dataset tracked compact --commit` folds shards into the base files, on the default branch.
{END}
"""


def asked_before(folder: Path) -> bool:
    """Whether the project has said yes or no to words already."""
    return "track_words" in repository_settings(folder).get("dataset", {})


def begin(runtime: Runtime, folder: Path, *, words: bool | None) -> list[str]:
    """Begin a dataset, keep the answer about words, tell agents; return what was done."""
    place = wiring.place_here(runtime, folder)
    done = [f"made {path}" for path in prepare(place, wiring.records(runtime, place))]
    open_trust(runtime).allow_rows(place.repository.top)
    if words is not None:
        done += _answered(runtime, place, words=words)
    return done + _told(files.contained(place.repository.top, place.repository.top / "CLAUDE.md"))


def _answered(runtime: Runtime, place: Place, *, words: bool) -> list[str]:
    """Write the answer into the project's settings; who answers yes trusts what the project says from now on."""
    path = files.contained(place.repository.top, place.repository.top / SETTINGS)
    before = path.read_text("utf-8") if path.exists() else ""
    line = f"track_words = {str(words).lower()}"
    if asked_before(place.repository.top):
        return [f"{path} says already whether words are tracked"]
    head, found, rest = before.partition("[dataset]\n")
    after = f"{head}{found}{line}\n{rest}" if found else f"{before}{chr(10) if before else ''}[dataset]\n{line}\n"
    tomllib.loads(after)
    files.replace(path, after.encode(), mode=0o644)
    if words:
        open_trust(runtime).grant(place.repository.top, risky(repository_settings(place.repository.top)), rows=True)
    return [f"{path}: {line}"]


def _told(path: Path) -> list[str]:
    before = path.read_text("utf-8") if path.exists() else ""
    if BEGIN in before:
        return []
    gap = "\n" if before and not before.endswith("\n\n") else ""
    files.replace(path, (before + gap + SECTION).encode(), mode=0o644)
    return [f"{path}: a section on training rows"]
