from pathlib import Path

from flightlog.agents import find_agent
from flightlog.agents.claude_code.driver import SessionOptions, session_arguments
from flightlog.agents.claude_code.files import config_dir_of, has_sessions


def test_the_agent_has_hooks():
    agent = find_agent("claude-code")

    assert agent.hooks().project_settings(Path("/p")) == Path("/p/.claude/settings.local.json")


def test_a_directory_with_a_transcript_has_sessions(tmp_path):
    assert not has_sessions(tmp_path)
    (tmp_path / "projects/one").mkdir(parents=True)
    (tmp_path / "projects/one/s.jsonl").touch()

    assert has_sessions(tmp_path)
    assert config_dir_of(f"{tmp_path}/projects") == config_dir_of(str(tmp_path)) == str(tmp_path)


def test_options_of_a_session_become_the_words_of_the_client():
    plain = SessionOptions("opus", 3, "acceptEdits", ("Read", "Bash(ls:*)"))
    full = SessionOptions(
        "opus", 3, "default", ("default",), 0.5, "Be brief", {"a": {"prompt": "p"}}, True
    )

    words = "--model opus --max-turns 3 --permission-mode acceptEdits --allowedTools Read Bash(ls:*) --tools Read,Bash"
    assert session_arguments(plain, resumes=False) == [
        *words.split(),
        "--setting-sources",
        "",
        "--strict-mcp-config",
    ]
    assert session_arguments(full, resumes=True)[6:] == [
        *("--allowedTools", "--tools", "default", "--max-budget-usd", "0.500000"),
        *(
            "--system-prompt",
            "Be brief",
            "--system-prompt-snapshot",
            "off",
            "--agents",
            '{"a": {"prompt": "p"}}',
        ),
    ]
