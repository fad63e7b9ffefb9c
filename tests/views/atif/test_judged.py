"""What judges that are not ours say of our trajectories, for everything real agents wrote."""

import json
from collections import Counter
from pathlib import Path

import pytest

from flightlog.archive.archive import Archive
from flightlog.model.session import Note, NoteKind
from flightlog.views.atif.lint import lint_trajectory
from flightlog.views.atif.writer import MAIN, AtifOptions, build_trajectory
from support import hostile
from support.judges import HARBORS, STRICT, import_trajectories, validate_files
from support.recordings import CASES, archive

NOT_SAID = {NoteKind.COMPACTION, NoteKind.SUMMARY, NoteKind.UNKNOWN}


def write_bundle(folder, bundle):
    for path, body in bundle.iter_files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(body)


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory):
    """Every recorded session in both versions: where it was written, and the session with what it was known."""
    root = tmp_path_factory.mktemp("trajectories")
    by_name = {}
    for case in CASES:
        recorded = archive(tmp_path_factory.mktemp("recorded"), case)
        for session in recorded.iter_sessions():
            known = recorded.thread_contexts(session.id)
            name = f"{case.replace('/', '-')}-{session.id[:8]}"
            for version in ("1.6", "1.7"):
                write_bundle(
                    root / version / name, build_trajectory(session, AtifOptions(version), known)
                )
            by_name[name] = (session, known)
    return root, by_name


@pytest.mark.parametrize("version", HARBORS)
def test_harbor_finds_every_trajectory_valid(trajectories, version):
    root, recorded = trajectories
    files = sorted((root / "1.6" if version == STRICT else root).rglob("*.json"))

    errors_by_file = validate_files(version, files)

    assert {path: errors for path, errors in errors_by_file.items() if errors} == {}
    assert len(errors_by_file) >= len(recorded)


def test_harbor_reports_a_planted_fault(trajectories, tmp_path):
    root, _ = trajectories
    whole = json.loads(next((root / "1.6").rglob(MAIN)).read_bytes())
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({**whole, "steps": whole["steps"][1:]}))

    assert all(validate_files(version, [wrong])[str(wrong)] for version in HARBORS)


def test_a_hostile_session_becomes_a_trajectory_like_any_other(tmp_path):
    session = hostile.write(tmp_path / "config")
    recorded = Archive({"claude-code": (str(tmp_path / "config"),)})
    bundle = build_trajectory(
        recorded.read_session(session), contexts=recorded.thread_contexts(session)
    )
    write_bundle(tmp_path / "out", bundle)
    names = {path.name for path in (tmp_path / "out").iterdir()}

    assert names == {"trajectory.json", "subagent_script-alert-script-script_a1.json"}
    for version in HARBORS:
        assert not any(validate_files(version, (tmp_path / "out").glob("*.json")).values())


def test_our_own_lint_finds_no_error_and_only_known_warnings(trajectories):
    root, _ = trajectories
    counts = Counter()
    for path in root.rglob("*.json"):
        for finding in lint_trajectory(
            path.read_bytes(), lambda name, folder=path.parent: (folder / name).is_file()
        ):
            counts[finding.rule] += 1

    # The scripted model called a tool of a server that its request did not define. A prompt that
    # waited has the time it was typed at, and side calls of old clients record no prompt.
    assert dict(counts) == {"undefined-tool": 2, "time-backwards": 8, "agent-first": 12}


def test_scout_imports_every_session_with_the_same_messages_and_tokens(trajectories):
    root, recorded = trajectories

    counts_by_session = {
        Path(uri).parent.name: counts for uri, counts in import_trajectories(root / "1.6").items()
    }

    assert counts_by_session.keys() == recorded.keys()
    for name, (session, known) in recorded.items():
        assert counts_by_session[name] == count_expected(session, known), name


def count_expected(session, known):
    """What anybody who reads the recording would count."""
    copied = known[""].copied_message_ids if "" in known else frozenset()
    main = [step for step in session.steps if step.message_id not in copied]
    all_steps = main + [
        step for subagent in session.subagents for turn in subagent.turns for step in turn.steps
    ]
    return {
        "messages": messages(session, known),
        "prompt": sum(step.usage.prompt_tokens for step in all_steps),
        "completion": sum(step.usage.output_tokens for step in all_steps),
        "cached": sum(step.usage.cache_read_tokens for step in all_steps),
        "own tokens": sum(step.usage.total_tokens for step in main),
        "responses": len(all_steps),
        "compactions": sum(
            is_note(item, NoteKind.COMPACTION) for turn in session.turns for item in turn.items
        )
        + bool(sum(turn.is_rewound for turn in session.turns)),
        "subagents": len(session.subagents),
    }


def messages(session, known):
    """Count what was said on the main thread: the system prompt, prompts, notes, responses and results."""
    items = [item for turn in session.turns for item in turn.items]
    notes = sum(isinstance(item, Note) and item.kind not in NOT_SAID for item in items)
    prompts = sum(turn.kind is not None for turn in session.turns)
    answers = sum(call.result is not None for step in session.steps for call in step.tool_calls)
    warmups = sum(
        subagent.is_side_call or not subagent.tool_call_id for subagent in session.subagents
    )  # each is a step that refers to a trajectory: two messages
    system = bool("" in known and known[""].system)
    context = len(known[""].context) if "" in known else 0
    return system + context + prompts + notes + len(session.steps) + answers + 2 * warmups


def is_note(item, kind):
    return isinstance(item, Note) and item.kind is kind
