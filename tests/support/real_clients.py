"""Real clients of other agents against the scripted model, offline, each with a home of its own.

    machine = make_machine(tmp_path, "codex")
    run = machine.run({"rules": [{"replies": [{"text": "Hello."}]}]}, "Say hello.")
    assert run.exit_code == 0

A machine keeps its home, so that a second run can resume or fork the session of the first: what it
takes for that is put before the prompt, as in `machine.run(scenario, "And now?", "resume", session)`.

The clients are put in .tools by tools/install_agents.sh; when one is missing the test fails and says
so. The environment has a fake key and nothing of the machine but PATH; whatever is not loopback goes
to a proxy port on which nothing listens.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flightlog.agents.scripted.scenario import Scenario, parse_scenario
from flightlog.agents.scripted.server import ServedRequest
from support.scripted_apis import serve_scenario

TOOLS = Path(__file__).parents[2] / ".tools" / "agents"
LIMIT_S = 60
_AUTHOR = ("-c", "user.name=Dev", "-c", "user.email=dev@example.invalid")


@dataclass(frozen=True)
class ClientRecipe:
    """How one client is pointed at the scripted model and given one prompt."""

    version: str
    dialect: str
    shell: str  # the name of its tool that runs a command, and of the argument that takes it
    shell_argument: str
    folder: str  # its directory below its home
    state: tuple[str, ...]  # what it keeps of sessions, as patterns below its home
    arguments: tuple[str, ...]
    prompt_flag: tuple[str, ...]
    configure: Callable[["ClientMachine", str], dict[str, str]]


@dataclass(frozen=True)
class ClientRun:
    """One run: how it ended, what it printed, and what it asked the model."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float
    requests: list[ServedRequest]

    @property
    def records(self) -> list[dict]:
        """The JSON objects that it printed, one a line."""
        lines = [line for line in self.stdout.splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]

    @property
    def session(self) -> str:
        """The id of its session, as it printed it."""
        names = ("thread_id", "sessionID", "sessionId", "session_id")
        ids = [record[name] for record in self.records for name in names if name in record]
        opened = [record["id"] for record in self.records if record.get("type") == "session"]
        return next(iter([*ids, *opened]), "")

    @property
    def calls(self) -> list[ServedRequest]:
        """The requests that a model answered."""
        return [request for request in self.requests if request.usage]


@dataclass(frozen=True)
class ClientMachine:
    """A machine of its own for one client."""

    root: Path
    client: str
    version: str
    extra: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()  # of the command, for a client that sees other mounts
    seen_root: Path | None = None  # the path of `root` inside of these

    @property
    def recipe(self) -> ClientRecipe:
        return RECIPES[self.client]

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def program(self) -> Path:
        program = TOOLS / self.client / self.version / self.client
        name = f"{self.client}/{self.version}"
        assert program.exists(), f"{name} is not installed: run tools/install_agents.sh {name}"
        return program

    def run(self, scenario: dict | Scenario, prompt: str, *arguments: str) -> ClientRun:
        """Run one prompt to its end against `scenario`."""
        script = scenario if isinstance(scenario, Scenario) else parse_scenario(scenario)
        with serve_scenario(script) as model:
            started = time.monotonic()
            process = subprocess.run(
                self.command(*self.recipe.arguments, *arguments, *self.recipe.prompt_flag, prompt),
                cwd=self.project,
                env=self.environment(model.url),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
            )
            seconds = time.monotonic() - started
        out, err = process.stdout.decode(), process.stderr.decode()
        return ClientRun(process.returncode, out, err, seconds, model.requests)

    def command(self, *arguments: str) -> list[str]:
        """The client's program with `arguments`."""
        return [*self.prefix, str(self.program), *arguments]

    def environment(self, url: str) -> dict[str, str]:
        """Configure the client for the model at `url`; return its environment."""
        return self._base_environment() | self.recipe.configure(self, url) | self.extra

    def shell_call(self, command: str) -> dict:
        """The block of a reply that runs `command` with the client's own tool."""
        recipe = self.recipe
        arguments = {recipe.shell_argument: command}
        if self.client in {"opencode", "copilot"}:
            arguments["description"] = "Run a command"
        return {"tool": recipe.shell, "input": arguments}

    def write_config(self, path: str, text: str) -> None:
        """Write a file below the home."""
        (self.home / path).parent.mkdir(parents=True, exist_ok=True)
        (self.home / path).write_text(text)

    def _base_environment(self) -> dict[str, str]:
        dead = "http://127.0.0.1:9"
        root = self.seen_root or self.root
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(root / "home"),
            "PWD": str(root / "project"),  # OpenCode takes its directory from here
            "TMPDIR": str(root / "tmp"),
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "HTTPS_PROXY": dead,
            "HTTP_PROXY": dead,
            "NO_PROXY": "127.0.0.1,localhost",
            "LAB_API_KEY": fake_key(),
        }


def fork_by_app_server(
    machine: ClientMachine, scenario: dict | Scenario, session: str, prompt: str
) -> ClientRun:
    """Fork a Codex session and give the fork one prompt, as an editor does it.

    Before 0.146 `codex exec` cannot fork, and a fork is a copy of its parent's records.
    """
    script = scenario if isinstance(scenario, Scenario) else parse_scenario(scenario)
    with serve_scenario(script) as model:
        started = time.monotonic()
        process = subprocess.Popen(
            machine.command("app-server"),
            cwd=machine.project,
            env=machine.environment(model.url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        lines: list[dict] = []

        def send(method: str, is_answer: Callable[[dict], bool], **params: object) -> dict:
            request = {"id": method, "method": method, "params": params}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            while not lines or not is_answer(lines[-1]):
                lines.append(json.loads(process.stdout.readline()))
            return lines[-1]

        with process:
            client = {"name": "flightlog", "version": "0"}
            send("initialize", lambda line: line.get("id") == "initialize", clientInfo=client)
            fork = send(
                "thread/fork", lambda line: line.get("id") == "thread/fork", threadId=session
            )
            thread = fork["result"]["thread"]["id"]
            send(
                "turn/start",
                lambda line: line.get("method") == "turn/completed",
                threadId=thread,
                input=[{"type": "text", "text": prompt}],
            )
            process.stdin.close()
        limit.cancel()
        out = "".join(f"{json.dumps(line)}\n" for line in [{"thread_id": thread}, *lines])
        seconds = time.monotonic() - started
    return ClientRun(process.returncode, out, "", seconds, model.requests)


def fake_key() -> str:
    """A key that opens nothing, put together here so that no scanner takes it for one."""
    return "sk-" + "fake-" + "0" * 12


def make_machine(root: Path, client: str, version: str = "", **extra: str) -> ClientMachine:
    """Make the directories of a machine below `root`; `extra` is added to the environment."""
    machine = ClientMachine(root, client, version or RECIPES[client].version, extra)
    for folder in (machine.home, machine.project, root / "tmp"):
        folder.mkdir(parents=True)
    (machine.project / "README.md").write_text("# Project\n")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Start"]):
        subprocess.run(["git", *_AUTHOR, *command], cwd=machine.project, check=True)
    return machine


def _configure_codex(machine: ClientMachine, url: str) -> dict[str, str]:
    config = f"""
model = "gpt-5.1-codex"
model_provider = "lab"
check_for_update_on_startup = false
[model_providers.lab]
name = "lab"
base_url = "{url}/v1"
env_key = "LAB_API_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
[analytics]
enabled = false
"""
    machine.write_config(".codex/config.toml", config)
    return {}


def _configure_opencode(machine: ClientMachine, url: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": fake_key()},
        "models": {"scripted": {}},
    }
    config = {"model": "lab/scripted", "provider": {"lab": provider}, "autoupdate": False}
    machine.write_config(".config/opencode/opencode.json", json.dumps(config))
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "true",
        "OPENCODE_DISABLE_MODELS_FETCH": "true",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "true",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "true",
    }


def _configure_copilot(machine: ClientMachine, url: str) -> dict[str, str]:
    return {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": fake_key(),
        "COPILOT_MODEL": "gpt-5.1",
    }


def _configure_gemini(machine: ClientMachine, url: str) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    machine.write_config(".gemini/settings.json", json.dumps(settings))
    return {"GEMINI_API_KEY": fake_key(), "GOOGLE_GEMINI_BASE_URL": url}


def _configure_qwen(machine: ClientMachine, url: str) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    machine.write_config(".qwen/settings.json", json.dumps(settings))
    # Older versions send requests to loopback through the proxy too.
    direct = {"HTTPS_PROXY": "", "HTTP_PROXY": ""} if machine.version.startswith("0.15.") else {}
    return direct | {
        "OPENAI_API_KEY": fake_key(),
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_MODEL": "qwen3-coder-plus",
    }


def _configure_pi(machine: ClientMachine, url: str) -> dict[str, str]:
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "LAB_API_KEY",
        "models": [{"id": "scripted"}],
    }
    machine.write_config(".pi/agent/models.json", json.dumps({"providers": {"lab": provider}}))
    return {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}


RECIPES = {
    "codex": ClientRecipe(
        version="0.166.0",
        dialect="responses",
        shell="exec_command",
        shell_argument="cmd",
        folder=".codex",
        state=(".codex/sessions/**/*.jsonl",),
        arguments=(
            *("exec", "--json", "--skip-git-repo-check"),
            *("--dangerously-bypass-approvals-and-sandbox", "--disable", "apps"),
            *("--disable", "plugins"),
        ),
        prompt_flag=(),
        configure=_configure_codex,
    ),
    "opencode": ClientRecipe(
        version="1.18.33",
        dialect="chat",
        shell="bash",
        shell_argument="command",
        folder=".local/share/opencode",
        state=(".local/share/opencode/opencode.db*",),
        arguments=("run", "--format", "json"),
        prompt_flag=(),
        configure=_configure_opencode,
    ),
    "copilot": ClientRecipe(
        version="1.0.102",
        dialect="chat",
        shell="bash",
        shell_argument="command",
        folder=".copilot",
        state=(".copilot/session-state/**/*",),
        arguments=("--allow-all-tools", "--output-format", "json"),
        prompt_flag=("-p",),
        configure=_configure_copilot,
    ),
    "gemini": ClientRecipe(
        version="0.61.0",
        dialect="gemini",
        shell="run_shell_command",
        shell_argument="command",
        folder=".gemini",
        state=(".gemini/tmp/**/*.json*", ".gemini/tmp/*/.project_root"),
        arguments=(
            "--output-format",
            "stream-json",
            "--yolo",
            "-m",
            "gemini-2.5-pro",
            "--skip-trust",
        ),
        prompt_flag=("-p",),
        configure=_configure_gemini,
    ),
    "qwen": ClientRecipe(
        version="0.24.4",
        dialect="chat",
        shell="run_shell_command",
        shell_argument="command",
        folder=".qwen",
        state=(".qwen/projects/**/*.json*",),
        arguments=("--output-format", "stream-json", "--yolo"),
        prompt_flag=("-p",),
        configure=_configure_qwen,
    ),
    "pi": ClientRecipe(
        version="0.87.1",
        dialect="chat",
        shell="bash",
        shell_argument="command",
        folder=".pi",
        state=(".pi/agent/sessions/**/*.jsonl",),
        arguments=("--mode", "json", "--provider", "lab", "--model", "scripted"),
        prompt_flag=("-p",),
        configure=_configure_pi,
    ),
}
