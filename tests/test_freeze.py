"""What flightlog prints, serves and writes on the sample archive is what the golden files say, byte for byte."""

import pytest

from support.frozen import run_in_child, sample
from support.frozen_commands import GROUPS, WRITES, golden_names, journal_tags
from support.golden import ROOT, assert_all_golden, diff

FREEZE = ROOT / "freeze"
BYTES_MAX = 1_000_000
WORKS = [
    *(("commands", group) for group in GROUPS),
    *(("files", feature) for feature in WRITES),
    ("pages",),
]


@pytest.mark.parametrize("work", WORKS, ids=" ".join)
def test_output_on_the_sample_archive_is_golden(work):
    with sample() as root:
        texts = run_in_child(root, *work)

    assert_all_golden({f"freeze/{name}.txt": text for name, text in texts.items()})


def test_tags_and_fields_of_every_journal_are_golden():
    assert_all_golden({"freeze/journals.txt": journal_tags()})


def test_every_golden_file_of_the_freeze_has_a_maker_and_they_stay_small():
    files = list(FREEZE.iterdir())

    assert {path.stem for path in files} == golden_names()
    assert sum(path.stat().st_size for path in files) < BYTES_MAX


def test_what_differs_is_shown_as_a_unified_diff():
    text = journal_tags()

    lines = diff("freeze/journals.txt", text.replace("live type=bound", "live type=tied"))

    assert [line for line in lines if line[0] in "+-"][2:] == [
        "-live type=bound: profile, fingerprint",
        "+live type=tied: profile, fingerprint",
    ]
    assert diff("freeze/journals.txt", text) == []
    assert "does not exist" in diff("freeze/none.txt", text)[0]
