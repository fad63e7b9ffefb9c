"""Beginning a dataset in a project: what `init --project` offers, and asks a person once.

Writes three things, each marked so that it can be found and taken out again: the tracked directory, the
project's own answer about words in `flightlog.toml`, and a section of `CLAUDE.md` that tells agents.
"""

import tomllib
from pathlib import Path

from flightlog.app import dataset as wiring
from flightlog.app.privacy import SETTINGS, repository_settings
from flightlog.dataset.layout import DatasetDirs, prepare_dataset
from flightlog.model.runtime import Runtime
from flightlog.privacy.trust import open_trust, risky_settings
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


def has_words_setting(folder: Path) -> bool:
    """Whether the project has said yes or no to words already."""
    return "track_words" in repository_settings(folder).get("dataset", {})


def init_dataset(runtime: Runtime, folder: Path, *, words: bool | None) -> list[str]:
    """Begin a dataset, keep the answer about words, tell agents; return what was done."""
    place = wiring.locate_dataset(runtime, folder)
    done = [f"made {path}" for path in prepare_dataset(place, wiring.make_row_redactor(runtime, place))]
    open_trust(runtime).allow_rows(place.repository.top)
    if words is not None:
        done += _write_words_setting(runtime, place, words=words)
    return done + _add_agent_instructions(
        files.ensure_contained(place.repository.top, place.repository.top / "CLAUDE.md")
    )


def _write_words_setting(runtime: Runtime, place: DatasetDirs, *, words: bool) -> list[str]:
    """Write the answer into the project's settings; who answers yes trusts what the project says from now on."""
    path = files.ensure_contained(place.repository.top, place.repository.top / SETTINGS)
    before = path.read_text("utf-8") if path.exists() else ""
    line = f"track_words = {str(words).lower()}"
    if has_words_setting(place.repository.top):
        return [f"{path} says already whether words are tracked"]
    head, found, rest = before.partition("[dataset]\n")
    after = f"{head}{found}{line}\n{rest}" if found else f"{before}{chr(10) if before else ''}[dataset]\n{line}\n"
    tomllib.loads(after)
    files.replace_file(path, after.encode(), mode=0o644)
    if words:
        open_trust(runtime).grant(
            place.repository.top, risky_settings(repository_settings(place.repository.top)), rows=True
        )
    return [f"{path}: {line}"]


def _add_agent_instructions(path: Path) -> list[str]:
    before = path.read_text("utf-8") if path.exists() else ""
    if BEGIN in before:
        return []
    gap = "\n" if before and not before.endswith("\n\n") else ""
    files.replace_file(path, (before + gap + SECTION).encode(), mode=0o644)
    return [f"{path}: a section on training rows"]
