"""Every command line in README and docs works as documented, with the bare wheel in an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

import test_tutorial
from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from support.client_sandbox import ClientSandbox, isolated_environment
from support.cluster import cluster
from support.real_agent import PINNED, agent_program, new_session
from support.real_clients import fake_key
from support.retro_archive import write_chats

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "src/flightlog/agents/scripted/recordings"
NAMES = "flightlog|harness|ralph-runtime|chat-retro|issue-workflow|ml-data-collector"
SIZE_MB_MAX = 170

# Lines that need a client and its model, a cluster, or a second account: a test of their own has them.
NEED_MORE = ("--analyst claude-code", "tcp://head:8786", "5b368800", "live swap 2123f2df")
CHATS = "$(grep -ohE 'chat-[0-9]+-[0-9]+-[0-9a-f]{6}' -r .git-ml/tracked | sort -u)"
EACH_CHAT = f"for id in {CHATS}; do flightlog dataset judge $id"
COMMITS = "$(git commit -q --allow-empty -m Release; git log --format=%h --abbrev=12)"
EACH_COMMIT = f"for id in {COMMITS}; do flightlog dataset judge $id"
# A command that a person ends: it is ended as soon as it has printed something.
UNTIL_SEEN = "rm -f seen.txt; { %s > seen.txt & }; until [ -s seen.txt ]; do sleep 0.1; done; kill $!; cat seen.txt"
# A batch of samples that is killed once it has begun.
INTERRUPTED = """harness resample my-run --request 5 --count 12 --per-minute 300 >/dev/null 2>&1 & batch=$!
began=$(find runs/my-run -path '*request_005*' | wc -l)
until [ $(find runs/my-run -path '*request_005*' | wc -l) -gt $((began + 2)) ]; do sleep 0.05; done; kill -9 $batch
"""
# A plan whose only task runs at this moment, in a project of its own.
RUNNING = """plan=$PWD/slow.yaml; cd $(mktemp -d) && git init -q .
{ flightlog loop run --plan $plan --autonomous >/dev/null 2>&1 & }
until ralph-runtime status --session session-001 2>/dev/null | grep -q running; do sleep 0.1; done
"""
THEIR_RUN = """[ -d runs/their-run ] || cp -r runs/my-run runs/their-run
sed -i 's/Take notes/Take their notes/' runs/their-run/config.yaml
"""
# What the reader puts in place of a name of the documents.
VALUES = {
    "flightlog session follow": UNTIL_SEEN % "flightlog session follow",
    "flightlog serve": UNTIL_SEEN % "flightlog serve",
    "flightlog watch": "(sleep 1; printf q) | script -qec 'flightlog watch' /dev/null",
    "harness resample my-run --resume": INTERRUPTED + "harness resample my-run --resume",
    "ralph-runtime stop": RUNNING + "ralph-runtime stop",
    "ralph-runtime pause": RUNNING + "ralph-runtime pause",
    "flightlog trust runs/their-run": THEIR_RUN + "flightlog trust runs/their-run",
    "ssh other flightlog": "FLIGHTLOG_HOME=$HOME/other flightlog",
    "'my-agent --ask {prompt}'": '"$PWD/my-agent --ask {prompt}"',
    "experiment run experiment.yaml": "experiment run rounding.yaml --name first",
    "experiment report NAME": "experiment report first",
    "add-attempts rounding 5": "add-attempts rounding 1",
    "uvx flightlog": "flightlog",
    "flightlog init": "flightlog init --yes",
    "harness replay my-run --session 2 --turn 7 --count 8": "harness replay my-run --session 2 --turn 7 --count 2",
    "replay_my-run_s02_t07_r01_…": "$(basename runs/replay_my-run_s02_t07_r01_*)",
    "harness resample-edit my-run --request 5 --input": "sed -i 's/Take notes/Take few notes/' request.json && "
    "harness resample-edit my-run --request 5 --input",
    # Chats and sessions that the page has not made the dataset forget yet.
    "judge chat-20261102-120140-3fa9c1 feedback good": f"stats && {EACH_CHAT} feedback good && break; done",
    "judge chat-20261102-120140-3fa9c1 reward 0.75": f"stats && {EACH_CHAT} reward 0.75 && break; done",
    "judge 9fceb02d0ae5 ci_result failure": f"stats && {EACH_COMMIT} ci_result failure && break; done",
    "2026-11-02_13a84f73": "$(grep -ohE '[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9a-f]{8}' -r .git-ml/tracked | head -1)",
    "13a84f73": "2123f2df",
    "chat-20261102-120140-3fa9c1": "$(grep -ohE 'chat-[0-9]+-[0-9]+-[0-9a-f]{6}' -r .git-ml/tracked | head -1)",
    # The question is shown first, then answered.
    "answer --session session-001": "answer --session session-001 && ralph-runtime answer --session session-001 retry",
    "RUN OTHER": "my-run my-run",
    "RUN#2r3.14": "'my-run#2.3'",
    "RUN": "my-run",
    "'…'": "'Say it in words.'",
    "FILE:LINE": "work/step1.txt:1",
    "src/shop.py:12": "work/step1.txt:1",
    "src/shop.py:1-40": "work/step1.txt:1-1",
    "src/shop.py": "work/step1.txt",
    "run:shop/session_01": "run:my-run/session_01",
    "issue:9c2a3a8c": "issue:$(flightlog issue list --json | jq -r '.[0].id')",
    "retro show ID": "retro show $(flightlog retro patterns --json | jq -r '.[0].id')",
    "retro apply ID": "retro apply $(flightlog retro analyze --json | "
    "jq -r '[.recommendations[] | select(.action.diff != \"\")][0].id') --yes",
    "retro undo ID": "retro undo $(flightlog retro analyze --json | jq -r '.applied[0].id')",
    "resolve ID": "resolve $(flightlog issue list --json | jq -r '.[0].id')",
    "experiment.yaml": "notes.yaml",
    "greet/": "runs/greet/",
    "~/shop": ".",
}
CODES = {
    "flightlog doctor": (0, 1),  # 1: it found something to say
    "privacy scan": (0, 1),  # 1: there are secrets
    "privacy check": (0, 1),
    "lab lint": (0, 1),
    "issue-workflow process": (0, 1),
    "flightlog trust runs/their-run": (0, 1),  # 1: it is not allowed yet
}


# The page says that these need the extra `tables`.
NEED_TABLES = ("dataset export --format huggingface", "dataset export --format parquet")


def blocks(page):
    """Yield the text of each code block, and of each command between backticks in a table."""
    text = page.read_text("utf-8")
    for language, block in re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", text):
        if language in {"", "sh", "console"}:  # `text` is output, or an error made on purpose
            yield block
    yield from re.findall(r"^(?:    \S.*\n)+", re.sub(r"(?ms)^```.*?^```$", "", text), re.MULTILINE)
    for row in re.findall(r"^\|.*\|$", text, re.MULTILINE):
        yield from re.findall(rf"`((?:{NAMES}) [^`]+)`", row) if page.name == "README.md" else ()


def lines(page):
    """Return the command lines of a page, without prompts and comments."""
    commands = []
    for block in blocks(page):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#\s.*$", "", line.strip().removeprefix("$ "))
            if re.match(rf"(?:uvx |.*\| *)?(?:{NAMES})\s", command):
                commands.append(command)
    return commands


def list_documented_commands():
    how_to = sorted((ROOT / "docs/how-to").glob("*.md"))
    pages = [ROOT / "README.md", *how_to, *sorted((ROOT / "docs/explanation").glob("*.md"))]
    return {page: lines(page) for page in pages}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The wheel, installed without extras; return the directory of its commands."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


def install_wheel(top, extra=""):
    """Build the wheel and install it with `extra`; return the directory of its commands."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(top)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    uv = [str(Path(sys.executable).with_name("uv"))]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(top / "venv")], check=True)
    (wheel,) = top.glob("*.whl")
    install = [*uv, "pip", "install", "-q", "--python", str(top / "venv/bin/python")]
    pins = [
        f"--constraint={ROOT / 'requirements' / name}.txt" for name in ("run", "extras", "scale")
    ]
    subprocess.run([*install, "--compile-bytecode", *pins, f"{wheel}{extra}"], check=True)
    return top / "venv/bin"


def machine(top, bare):
    """Return the environment of a person who has only git, and the directory of their project."""
    home, shop = top / "home", top / "home/shop"
    shutil.copytree(SAMPLES, home / ".claude")
    shop.mkdir()
    for transcript in home.rglob("*.jsonl"):
        data = transcript.read_bytes()
        transcript.write_bytes(data.replace(b"/home/dev/project", str(shop).encode()))
    path = f"{bare}:{Path(shutil.which('git')).parent}:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC", "EDITOR": "true"}
    return env | {"GIT_CONFIG_NOSYSTEM": "1"}, shop


PREPARE = """
set -e
git init -q . && git config user.name You && git config user.email you@example.com && mkdir work runs "$HOME"/.codex
cat > model.yaml <<'END'
rules:
  - replies:
%s
      - text: Done.
END
cat > notes.yaml <<'END'
model: claude-opus-5-5
engine: scripted
scenario: model.yaml
work_dir: work
sessions:
  - {session_index: 1, prompt: Take notes.}
  - {session_index: 2, prompt: Repair it.}
END
cat > rounding.yaml <<'END'
tasks: [{id: rounding, directory: work, prompt: Repair it., verifiers: [test -e step1.txt]}]
arms:
  - {name: base, agent: scripted, scenario: model.yaml, model: claude-opus-5-5}
  - {name: careful, agent: scripted, scenario: model.yaml, model: claude-haiku-4-5}
END
echo 'password = "hunter2-and-more-of-it"' > notes.md && cp notes.md notes.txt
cp "$HOME"/.claude/projects/*/2123f2df*.jsonl session.jsonl && cp session.jsonl rows.jsonl
harness run notes.yaml --run-name my-run
git apply --directory=work runs/my-run/full_diff.patch
git add -A work && git commit -qm 'Take notes'
cat > plan.yaml <<'END'
plan: a small plan
config: {human_intervention: on_error}
tasks:
  - {task_id: "001", name: greet, run: {command: "ls greeting.txt || { touch greeting.txt; exit 1; }"}, max_retries: 0}
END
# The first runner is killed while its question waits for an answer.
flightlog loop run --plan plan.yaml --autonomous 2> runner.txt & runner=$!
until grep -q '^question' runner.txt; do sleep 0.1; done
kill -9 $runner && rm runner.txt
printf '[dataset]\\ntrack_words = true\\n' >> flightlog.toml && flightlog trust --yes
flightlog init --project --dataset --yes && flightlog dataset session sync-to-jsonl
flightlog retro analyze export.zip >/dev/null
echo '{"ratings": {"activity": 4}}' > feedback.json
printf 'turns: [3, 7]\\nmodels: [claude-opus-5-5, claude-haiku-4-5]\\ncount: 2\\nmax_budget_usd: 5\\n' > grid.yaml
printf 'plan: slow\\ntasks:\\n  - {task_id: "001", name: wait, run: {command: "sleep 60"}}\\n' > slow.yaml
printf '#!/bin/sh\\necho You test late.\\n' > my-agent && chmod +x my-agent
git init -q --bare "$HOME"/remote.git && git remote add origin "$HOME"/remote.git
flightlog issue report-bug --title 'Slow' --description 'It is slow' --severity low
"""
STEP = """      - blocks:
          - thinking: Step {0} is next.
          - tool: Bash
            input: {{command: "echo {0} > step{0}.txt; test {0} != 4"}}"""


def write_export(shop):
    """Write an export of conversations."""
    with zipfile.ZipFile(shop / "export.zip", "w") as export:
        write_chats(shop / "chats.json", 1, 40)
        export.write(shop / "chats.json", "conversations.json")


def prepare_shop(shop, env):
    """Prepare what the pages assume: a run, a loop, an analysis, an export, files with secrets."""
    write_export(shop)
    steps = "\n".join(STEP.format(number) for number in range(1, 9))
    return run(PREPARE % steps, shop, env)


def run(command, cwd, env, *, network=False):
    words = [*([] if network else test_tutorial.offline()), "bash", "-c", command]
    return subprocess.run(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


def fill_in(command):
    for name, value in VALUES.items():
        command = command.replace(name, value)
    return command


@pytest.mark.slow
def test_every_documented_command_line_works_from_the_bare_wheel(bare, tmp_path):
    env, shop = machine(tmp_path, bare)
    ready = prepare_shop(shop, env)
    assert ready.returncode == 0, ready.stderr
    tables = install_wheel(tmp_path / "tables", "[tables]")
    failed = []
    ran = 0

    for page, commands in list_documented_commands().items():
        for command in commands:
            if any(part in command for part in NEED_MORE):
                continue
            needs_tables = any(part in command for part in NEED_TABLES)
            path = f"{tables}:{env['PATH']}" if needs_tables else env["PATH"]
            done = run(fill_in(command), shop, env | {"PATH": path})
            ran += 1
            codes = next((codes for part, codes in CODES.items() if part in command), (0,))
            broken = re.search("Traceback|no such (option|command)", done.stderr)
            silent = not (done.stdout + done.stderr) and ">" not in command
            if done.returncode not in codes or broken or silent:
                failed.append(f"{page.name}: {command}\n{done.returncode} {done.stderr[-400:]}")

    assert failed == [], "\n".join(failed)
    assert ran >= 100


STATE = """authProfiles:
  - {profileId: default, label: Mine, billingFingerprint: key-aaaa}
  - {profileId: work, label: Work, billingFingerprint: key-bbbb, configDirs: [%s]}
sessions: []
"""
NOTES = [
    {"blocks": [{"tool": "Bash", "input": {"command": f"echo {number} > note{number}"}}]}
    for number in range(8)
]
# The real client's model: it works for one prompt and judges for all others.
RULES = [
    {"when": {"prompt": "Write eight files."}, "replies": [*NOTES, {"text": "Written."}]},
    {"replies": [{"text": "You test late."}]},
]


def add_account(home):
    """Add a second configuration directory, whose account is the profile `work`."""
    shutil.copytree(home / ".claude", home / ".claude-work")
    health = home / ".claude" / "session-health"
    health.mkdir(exist_ok=True)
    (health / "runtime-state.yaml").write_text(STATE % (home / ".claude-work"))


def record_session(shop, env):
    """Have the real client work in a directory whose files are saved; return the session's id."""
    session = new_session()
    work = f"claude -p 'Write eight files.' --session-id {session} --allowedTools Bash"
    done = run(f"flightlog init --yes && flightlog lab track . && {work}", shop, env, network=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return session


@contextmanager
def real_client(top, env):
    """Yield the environment in which `claude` is the real client, with the scripted model."""
    (top / "tmp").mkdir()
    path = f"{agent_program(PINNED).parent}:{env['PATH']}"
    with serve_scenario(parse_scenario({"rules": RULES})) as model:
        sandbox = ClientSandbox(top / "home", top / "tmp", model.url, fake_key())
        yield env | isolated_environment(sandbox, path)


def check_lines(cases, shop, env):
    """Run the documented lines with the parts of `cases`; each prints the documented kind of text."""
    for part, (kind, values) in cases.items():
        commands = [
            line for page in list_documented_commands().values() for line in page if part in line
        ]
        assert commands, f"{part} is not documented any more"
        for command in commands:
            line = fill_in(command)
            for name, value in values.items():
                line = line.replace(name, value)
            # A run must not be inside the directory that its agent works in.
            cwd = shop.parent if " replay " in line else shop
            done = run(line, cwd, env, network=True)
            assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}{done.stderr[-1000:]}"
            assert kind in done.stdout, f"{line}\n{done.stdout[-1000:]}{done.stderr[-1000:]}"


ANALYST = {"--analyst claude-code": ("You test late.", {}), "live swap 2123f2df": ("work", {})}


@pytest.mark.slow
def test_lines_that_need_the_real_client_or_accounts_work(tmp_path):
    env, shop = machine(tmp_path, Path(sys.executable).parent)
    write_export(shop)
    add_account(tmp_path / "home")

    with real_client(tmp_path, env) as env:
        check_lines(ANALYST, shop, env)


@pytest.mark.soak
def test_lines_that_need_a_client_or_a_cluster_work_from_the_bare_wheel(bare, tmp_path):
    env, shop = machine(tmp_path, bare)
    ready = prepare_shop(shop, env)
    assert ready.returncode == 0, ready.stderr
    add_account(tmp_path / "home")
    scale = install_wheel(tmp_path / "scale", "[scale]")

    with (
        real_client(tmp_path, env | {"PATH": f"{scale}:{env['PATH']}"}) as env,
        cluster(tmp_path, os.environ, workers=1) as workers,
    ):
        check_lines(ANALYST, shop, env)  # first: what is recorded next is part of a look back
        small = {"--count 500": "--count 6", "--per-minute 300": "--per-minute 6000"}
        named = {"5b368800": record_session(shop, env)}
        cases = {
            "5b368800 --list-turns": ("8  ", named),
            "5b368800 --turn": ("exact", named),
            "tcp://head:8786": ("6", small | {"tcp://head:8786": workers.address}),
        }
        check_lines(cases, shop, env)

    assert [part for part in NEED_MORE if not any(part in case for case in ANALYST | cases)] == []


@pytest.mark.slow
def test_the_tutorial_works_from_the_bare_wheel(bare, tmp_path):
    test_tutorial.follow_tutorial(bare, tmp_path)


@pytest.mark.slow
def test_the_bare_wheel_is_small_enough(bare):
    (packages,) = bare.parent.glob("lib/python*/site-packages")
    used = subprocess.run(["du", "-sm", str(packages)], capture_output=True, text=True, check=True)

    assert int(used.stdout.split()[0]) <= SIZE_MB_MAX


@pytest.mark.slow
def test_an_extra_that_is_missing_is_named_with_its_install_line(bare, tmp_path):
    env, shop = machine(tmp_path, bare)

    done = run("flightlog session export --all --format parquet --output rows/", shop, env)

    assert done.returncode == 69
    assert "this needs pyarrow" in done.stderr
    assert "pip install 'flightlog[tables]'" in done.stderr
