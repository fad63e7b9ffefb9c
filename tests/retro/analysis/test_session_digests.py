"""What went wrong in sessions is found where it was put, and nowhere else; so is what came of them."""

import random

import pytest
from msgspec.structs import replace

from flightlog.archive.archive import Archive
from flightlog.model.addresses import parse_address
from flightlog.retro.analysis.findings import collect_findings
from flightlog.retro.analysis.session_digests import digest_session
from flightlog.retro.state import Preferences
from retro.planted_sessions import Scene, plant_sessions
from support.fresh import seeds
from support.recordings import archive
from support.transcripts import write

BAR = 0.9


@pytest.mark.parametrize("seed", seeds(3))
def test_frictions_are_found_where_they_were_put(tmp_path, seed):
    truth = plant_sessions(tmp_path, seed)
    archive = Archive({"claude-code": (str(tmp_path),)})

    digests = [digest_session(session, "1", None, {}) for session in archive.iter_sessions()]

    frictions = {
        (digest.id, mark.kind, parse_address(mark.address).turn)
        for digest in digests
        for mark in digest.frictions
    }
    assert len(frictions & truth) >= BAR * len(truth), sorted(truth - frictions)
    assert len(frictions & truth) >= BAR * len(frictions), sorted(frictions - truth)


def digest(tmp_path, tell):
    scene = Scene("22222222-2222-4222-8222-222222222222", random.Random(1), 3)
    tell(scene)
    write(tmp_path, scene.session, *scene.records)
    return digest_session(
        Archive({"claude-code": (str(tmp_path),)}).read_session(scene.session), "1", None, {}
    )


def test_commits_and_tests_are_recognized_by_tool_output(tmp_path):
    def tell(scene):
        scene.ask("Fix and commit")
        scene.call("Bash", {"command": "pytest -q"}, "2 failed, 3 passed")
        scene.call("Bash", {"command": "pytest -q"}, "5 passed in 0.1s")
        scene.call("Bash", {"command": "git commit -m fix"}, "[main 1a2b3c4] fix\n 1 file changed")
        scene.call(
            "Bash", {"command": "git commit -m nothing"}, "nothing to commit, working tree clean"
        )

    session_digest = digest(tmp_path, tell)

    assert [mark.kind for mark in session_digest.outcomes] == [
        "tests failed",
        "tests passed",
        "commit",
    ]
    assert session_digest.prompts[0].text == "Fix and commit"


def test_failure_signature_ignores_numbers_and_directories(tmp_path):
    def tell(scene):
        scene.ask("Run it")
        scene.call(
            "Bash",
            {"command": "run a"},
            "FileNotFoundError: no such file /tmp/a1/x.py line 3",
            fails=True,
        )
        scene.call(
            "Bash",
            {"command": "run b"},
            "FileNotFoundError: no such file /var/b/x.py line 77",
            fails=True,
        )
        scene.call("Bash", {"command": "run c"}, "ValueError: wrong colour", fails=True)

    first, second, third = digest(tmp_path, tell).failures

    assert first.key == second.key != third.key


def test_failures_that_differ_only_in_signs_are_one_finding(tmp_path):
    """Two findings with one id ended `retro analyze` over 792 public sessions."""
    words = [
        "fatal: pathspec data did not match",
        "fatal: pathspec data/ did not match",
        "\u2717\u2717",
    ]
    digests = []
    for number in range(4):

        def tell(scene, text=words[number % 2]):
            scene.ask("Run it")
            scene.call("Bash", {"command": "run a"}, text, fails=True)
            scene.call("Bash", {"command": "run b"}, words[2], fails=True)

        digests.append(replace(digest(tmp_path / str(number), tell), id=f"s{number}"))

    failures = [
        one for one in collect_findings(digests, Preferences()) if one.kind == "failure again"
    ]

    assert sorted((one.label, one.count) for one in failures) == [(words[0], 4), (words[2], 4)]


def test_failure_text_is_the_line_that_names_the_error(tmp_path):
    trace = 'Exit code 1\nTraceback (most recent call last):\n  File "a.py", line 3\n'

    def tell(scene):
        scene.ask("Run it")
        output = f"{trace * 200}Error: ENOSPC: no space left on the device"
        scene.call("Bash", {"command": "run a"}, output, fails=True)

    (failure,) = digest(tmp_path, tell).failures

    assert failure.text == "Error: ENOSPC: no space left on the device"


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        ("permission-denied", {"blocked"}),
        ("interactive-permission-interrupt-rewind", {"rejected", "approved"}),
    ],
)
def test_a_call_that_no_person_could_decide_is_not_a_rejected_one(tmp_path, case, kinds):
    (session,) = archive(tmp_path, f"2.1.325/{case}").iter_sessions()

    digest = digest_session(session, "1", None, {})

    assert {mark.kind for mark in digest.permissions} == kinds
