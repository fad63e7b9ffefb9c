"""Real sessions, run now, written as trajectories: every judge agrees, and nothing is lost that has a place."""

import base64
import json
import zlib
from pathlib import Path

import pytest

from flightlog.archive.archive import Archive
from flightlog.views.atif.fidelity import measure_fidelity
from flightlog.views.atif.lint import lint_trajectory
from flightlog.views.atif.writer import MAIN, AtifOptions, build_trajectory
from flightlog.views.session.timeline import all_steps
from support.judges import HARBORS, STRICT, import_trajectories, validate_files
from support.real_agent import make_bench, new_session

NOT_CARRIED = {"structured results", "reasoning the API withheld", "full outputs kept in files"}


def tool(command):
    return {"tool": "Bash", "input": {"command": command, "description": "Run a command"}}


def agent(prompt, *, background):
    asked = {"description": "Count files", "prompt": prompt, "subagent_type": "general-purpose"}
    return {"tool": "Agent", "input": {**asked, "run_in_background": background}}


SUBAGENT = {
    "when": {"first": "SUBTASK"},
    "replies": [{"blocks": [tool("ls | wc -l")]}, {"text": "REPORT: 0 files."}],
}
BOTH = [agent("SUBTASK A: count.", background=True), agent("SUBTASK B: count.", background=True)]
ALONE = agent("SUBTASK: count.", background=False)
PARALLEL = [tool("echo a"), tool("echo b"), tool("false")]
THINKING = [{"thinking": "Hm."}, {"redacted": "xx"}, tool("ls")]
SCENARIOS = {
    "single turn": [{"replies": [{"text": "Hello, \u4e16\u754c."}]}],
    "parallel tools": [{"replies": [{"blocks": PARALLEL}, {"text": "Done."}]}],
    "thinking": [{"replies": [{"blocks": THINKING}, {"text": "Done."}]}],
    "picture": [
        {
            "replies": [
                {"blocks": [{"tool": "Read", "input": {"file_path": "PICTURE"}}]},
                {"text": "Red."},
            ]
        }
    ],
    "subagent": [SUBAGENT, {"replies": [{"blocks": [ALONE]}, {"text": "Done."}]}],
    "background subagents": [
        SUBAGENT,
        {"replies": [{"blocks": BOTH}, {"text": "Running."}, {"text": "Noted."}]},
    ],
    "retry": [{"replies": [{"text": "Late.", "errors": [{"status": 529, "retry_after_s": 0}]}]}],
    "fatal error": [{"replies": [{"errors": [{"status": 401}]}]}],
}


def png():
    """A red picture of one point."""

    def chunk(kind, body):
        return (
            len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
        )

    head = chunk(b"IHDR", b"\0\0\0\1\0\0\0\1\x08\2\0\0\0")
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
        + chunk(b"IEND", b"")
    )


def ran(root, name):
    """Run one scenario; compaction and a fork take three runs."""
    bench = make_bench(root)
    (bench.project / "red.png").write_bytes(png())
    if name == "compaction and fork":
        rules = [
            {"when": {"prompt": "summary"}, "replies": [{"text": "<summary>So far.</summary>"}]}
        ]
        rules.append({"replies": [{"blocks": [tool("ls")]}, {"text": "Done."}]})
        session = new_session()
        bench.run({"rules": rules}, "first", session=session)
        bench.run({"rules": rules}, "/compact keep the words", resume=session)
        bench.run({"rules": rules}, "third", "--fork-session", resume=session)
    else:
        rules = json.loads(
            json.dumps(SCENARIOS[name]).replace("PICTURE", str(bench.project / "red.png"))
        )
        bench.run({"rules": rules}, "Say it.")
    return Archive({"claude-code": (str(bench.config),)})


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """Every scenario run once: what was recorded, and where its trajectories are."""
    root = tmp_path_factory.mktemp("trajectories")
    by_place = {}
    for name in [*SCENARIOS, "compaction and fork"]:
        recorded = ran(tmp_path_factory.mktemp("bench") / "machine", name)
        for session in recorded.iter_sessions():
            known = recorded.thread_contexts(session.id)
            where = f"{name} {session.id[:8]}"
            for version in ("1.6", "1.7"):
                for path, body in build_trajectory(
                    session, AtifOptions(version), known
                ).iter_files():
                    (root / version / where / path).parent.mkdir(parents=True, exist_ok=True)
                    (root / version / where / path).write_bytes(body)
            by_place[where] = (session, known)
    return root, by_place


def select_by_name(recorded, name):
    return [pair for where, pair in recorded.items() if where.startswith(name)]


@pytest.mark.parametrize("version", HARBORS)
def test_harbor_finds_real_trajectories_valid(sessions, version):
    root, recorded = sessions
    errors_by_file = validate_files(
        version, sorted((root / "1.6" if version == STRICT else root).rglob("*.json"))
    )

    assert {path: errors for path, errors in errors_by_file.items() if errors} == {}
    assert len(errors_by_file) > len(recorded)


def test_our_lint_finds_nothing_in_real_trajectories(sessions):
    root, _ = sessions
    findings = {
        f"{path.relative_to(root)}: {finding.rule} {finding.location}"
        for path in root.rglob("*.json")
        for finding in lint_trajectory(
            path.read_bytes(), lambda name, folder=path.parent: (folder / name).is_file()
        )
    }

    assert findings == set()


def test_scout_counts_the_tokens_that_were_recorded(sessions):
    root, recorded = sessions
    counts_by_session = {
        Path(uri).parent.name: counts for uri, counts in import_trajectories(root / "1.6").items()
    }

    assert counts_by_session.keys() == recorded.keys()
    for where, (session, known) in recorded.items():
        copied = frozenset().union(*(context.copied_message_ids for context in known.values()))
        own = [step for step in all_steps(session) if step.message_id not in copied]
        assert counts_by_session[where]["prompt"] == sum(
            step.usage.prompt_tokens for step in own
        ), where
        assert counts_by_session[where]["completion"] == sum(
            step.usage.output_tokens for step in own
        ), where
        assert counts_by_session[where]["responses"] == len(own), where


def test_no_element_that_the_format_has_is_lost(sessions):
    root, recorded = sessions
    for where, (session, known) in recorded.items():
        files = (root / "1.6" / where).glob("*.json")
        rows = measure_fidelity(session, [json.loads(path.read_bytes()) for path in files], known)

        assert {row.element for row in rows if row.missing_count} <= NOT_CARRIED, where
        if "fatal" not in where:
            assert {"prompts", "system prompts", "tool definitions"} <= {
                row.element for row in rows
            }


def test_each_scenario_recorded_what_it_names(sessions):
    root, recorded = sessions
    ((shown, _),) = select_by_name(recorded, "picture")
    (picture,) = [
        image for step in shown.steps for call in step.tool_calls for image in call.images
    ]

    assert [len(session.subagents) for session, _ in select_by_name(recorded, "background")] == [2]
    assert base64.b64decode(picture.data) in {
        path.read_bytes() for path in (root / "1.6").rglob("images/*.png")
    }
    assert any(
        known[""].copied_message_ids for _, known in select_by_name(recorded, "compaction and fork")
    )
    documents = [
        json.loads(path.read_bytes()) for path in (root / "1.6").glob(f"compaction*/{MAIN}")
    ]
    extras = [step.get("extra", {}) for document in documents for step in document["steps"]]
    assert any("context_management" in extra for extra in extras)
