import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from flightlog.lab.config import (
    AgentConfig,
    CommandConfig,
    RunConfig,
    SessionConfig,
    dump_run_config,
    parse_run_config,
    referenced_names,
    resolve_references,
)
from flightlog.lab.runner.agent_setup import agent_arguments
from flightlog.model.errors import Misconfigured

SMALL = """
model: claude-opus-5-5
work_dir: ./shop
sessions:
  - {session_index: 1, prompt: Look around.}
"""


def test_missing_settings_have_the_documented_defaults():
    config = parse_run_config(SMALL)

    assert config.allowed_tools == ("Read", "Grep", "Glob", "Bash", "Write", "Edit")
    assert (config.max_turns, config.permission_mode, config.session_mode) == (
        50,
        "bypassPermissions",
        "isolated",
    )
    assert (config.memory_file, config.provider) == ("MEMORY.md", "anthropic")
    assert (config.capture_api_requests, config.capture_subagent_trajectories) == (True, True)
    assert (config.load_project_settings, config.revert_work_dir) == (False, False)
    assert config.sessions[0].count == 1


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("session_mod: chained", "`session_mode`"),
        ("max_budget: 1", "`max_budget_usd`"),
        ("pre_run_command: []", "`pre_run_commands`"),
        ("zzzz: 1", "one of: model, work_dir"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_name(line, meant):
    with pytest.raises(Misconfigured) as error:
        parse_run_config(SMALL + line + "\n")

    assert line.split(":")[0] in error.value.message
    assert meant in error.value.hint


def test_an_unknown_key_inside_is_compared_with_the_names_of_its_place():
    with pytest.raises(Misconfigured, match="forkfrom") as error:
        parse_run_config(SMALL + "  - {session_index: 2, prompt: Go on., forkfrom: 1}\n")

    assert error.value.hint == "did you mean `fork_from`?"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1, 2]", "not a mapping"),
        ("a: [", "not YAML"),
        ("model: x\nwork_dir: y\n", "sessions"),
        (SMALL.replace("session_index: 1", "session_index: 2"), "counts from 1"),
        (SMALL + "  - {session_index: 1, prompt: Again.}\n", "counts from 1"),
        (SMALL + "  - {session_index: 2, prompt: Go., fork_from: 2}\n", "a session before it"),
        (SMALL.replace("prompt: Look around.", "prompt: Look., count: 0"), "count is at least 1"),
        (SMALL.replace("prompt: Look around.", "prompt: ' '"), "needs a prompt"),
        (SMALL + "max_budget_usd: 0\n", "above 0"),
        (SMALL + "max_turns: none\n", "max_turns"),
        (SMALL + "engine: command\n", "a list of words"),
        (SMALL + "engine: scripted\n", "needs a `scenario`"),
        (SMALL + "run_name: ../out\n", "run_name"),
        (SMALL + "memory_file: ../out\n", "inside work_dir"),
        (SMALL + "session_mode: parallel\n", "session_mode"),
    ],
)
def test_unusable_setting_is_refused_before_anything_starts(text, why):
    with pytest.raises(Misconfigured, match=why):
        parse_run_config(text)


def test_override_replaces_a_configured_value():
    assert parse_run_config(SMALL, {"model": "other", "tags": ["a"]}).tags == ("a",)


words = st.text(min_size=1).filter(lambda text: text.strip())
sessions = st.builds(
    lambda prompts: tuple(SessionConfig(at, *prompt) for at, prompt in enumerate(prompts, 1)),
    st.lists(st.tuples(words, st.text(), st.none() | st.integers(1, 99)), min_size=1, max_size=4),
)
configs = st.builds(
    RunConfig,
    model=words,
    work_dir=words,
    sessions=sessions,
    hypothesis=st.text(),
    tags=st.lists(st.text()).map(tuple),
    system_prompt=st.text(),
    memory_seed=st.text(),
    memory_file=st.none() | st.just("notes/M.md"),
    max_budget_usd=st.none() | st.floats(0.001, 1000),
    agents=st.lists(st.builds(AgentConfig, words, words, words), max_size=2).map(tuple),
    pre_run_commands=st.lists(st.builds(CommandConfig, words, st.text()), max_size=2).map(tuple),
)


@given(configs)
@example(
    RunConfig(
        "m",
        "w",
        (SessionConfig(1, "p", "\x85"),),
        hypothesis="\u2028 a\r\nb",
        tags=("\ufeff", "0o7"),
    )
)
def test_a_frozen_configuration_means_the_same_when_it_is_read_again(config):
    assert parse_run_config(dump_run_config(config)) == config


WRITTEN = """\
# Which model finds the bug?
sessions:
  - prompt: find it   # the whole task
    session_index: 1
effort: high
# the work tree
work_dir: ./shop
model: claude-opus-5-5
env: {API_TOKEN: "${SHOP_TOKEN}", MODE: fast}
"""


def test_a_frozen_configuration_keeps_comments_order_and_references():
    config = replace(parse_run_config(WRITTEN), work_dir="/abs/shop")

    frozen = dump_run_config(config, WRITTEN)

    assert parse_run_config(frozen) == config
    comments = [
        "# Which model",
        "sessions:",
        "# the whole task",
        "effort: high",
        "# the work tree",
        "/abs/shop",
    ]
    assert sorted(comments, key=frozen.index) == comments
    assert frozen.index("claude-opus-5-5") < frozen.index("max_turns: 50")
    assert referenced_names(config.env) == ("SHOP_TOKEN",)
    assert resolve_references(config.env["API_TOKEN"], {"SHOP_TOKEN": "x"}) == "x"
    with pytest.raises(Misconfigured, match="SHOP_TOKEN"):
        resolve_references(config.env["API_TOKEN"], {})


def test_a_secret_in_the_environment_has_to_be_a_reference():
    text = WRITTEN.replace("${SHOP_TOKEN}", "abc" + "def")

    with pytest.raises(Misconfigured, match=r"env\.API_TOKEN is a secret"):
        parse_run_config(text)


WORD = "abc" + "def"
KEY = "sk-" + "ant-" + "api03-" + "aB3x" * 20


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"args": ["--api-key", WORD]}, r"args: --api-key is a secret: write \$\{API_KEY\}"),
        ({"args": [f"--auth-token={WORD}"]}, "args: --auth-token"),
        ({"args": ["--note", f"use {KEY}"]}, "args: --note"),
        ({"args": [KEY]}, "args: "),
        (
            {"mcp_config": {"mcpServers": {"a": {"env": {"DB_PASSWORD": WORD}}}}},
            "mcp_config.DB_PASS",
        ),
        (
            {"mcp_config": {"mcpServers": {"a": {"headers": {"Authorization": WORD}}}}},
            r"mcp_config\.Authorization is a secret: write \$\{AUTHORIZATION\}",
        ),
        ({"mcp_config": {"mcpServers": {"a": {"args": ["-y", KEY]}}}}, "mcp_config.args"),
        ({"mcp_config": '{"mcpServers": {"a": {"X_SECRET": "WORD"}}}'}, "X_SECRET"),
    ],
)
def test_a_secret_in_arguments_or_servers_has_to_be_a_reference(setting, named):
    with pytest.raises(Misconfigured, match=named) as raised:
        parse_run_config(WRITTEN, setting)

    assert KEY not in str(raised.value)


def test_settings_that_hold_no_secret_are_accepted():
    servers = {"mcpServers": {"a": {"headers": {"Authorization": "Bearer ${SHOP_TOKEN}"}}}}
    env = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8000", "GIT_AUTHOR_NAME": "Ann", "KEY_FILE": "/k"}

    config = parse_run_config(
        WRITTEN, {"args": ["--verbose", "--add-dir", "/x"], "mcp_config": servers, "env": env}
    )

    assert (config.env, config.mcp_config) == (env, servers)


def test_effort_and_servers_reach_the_client():
    config = replace(parse_run_config(WRITTEN), mcp_config={"mcpServers": {}})

    words = agent_arguments(config, config.sessions[0], "plan", budget_usd=None, resumes=False)

    assert words[-4:] == ["--effort", "high", "--mcp-config", '{"mcpServers": {}}']
