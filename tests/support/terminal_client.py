"""Claude Code in a terminal, against the scripted model, as a person types into it.

    with serve_scenario(script) as model, TerminalClient(bench, model.url) as client:
        client.start()
        client.type_prompt("First prompt.", cache_read=0, cache_write=20000)

The terminal is a tmux server of its own. The client's status line appends its payloads to
`statusline.jsonl` below the machine's root.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.client_sandbox import ClientSandbox, isolated_environment
from support.real_agent import Bench
from support.real_clients import fake_key
from support.waiting import until

LIMIT_S = 40
_KEYS_S = 0.6  # between a text and its Enter: a faster one is taken for a part of a paste
_READY = re.compile("^\\s*\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}", re.MULTILINE)
_BUSY = "esc to interrupt"


def answer_first_questions(directory: Path, project: Path) -> None:
    """Write the client's state as it is after its first start; it is in its home or `directory`."""
    state = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [fake_key(), fake_key()[-20:]]},
        "projects": {str(project): {"hasTrustDialogAccepted": True}},
    }
    (directory / ".claude.json").write_text(json.dumps(state))


class Terminal:
    """A tmux server of its own; as a context manager it ends with all that runs in it."""

    def __init__(self) -> None:
        """Name the server, which `start` starts."""
        assert shutil.which("tmux"), "tmux is not installed: run tools/install_terminal.sh"
        self._socket = f"flightlog-{os.getpid()}"

    def __enter__(self) -> Self:
        """Return the terminal, in which nothing runs yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the terminal, with all that runs in it."""
        self._tmux("kill-server")

    def start(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
        """Run `command` in a window of its own with `environment` alone."""
        words = [f"{name}={value}" for name, value in environment.items()]
        place = ("-x", "160", "-y", "50", "-c", str(cwd))
        line = shlex.join(["env", "-i", *words, *command])
        made = self._tmux("-f", "/dev/null", "new-session", "-d", *place, line)
        assert made.returncode == 0, made.stderr

    def wait_for_end(self) -> None:
        """Wait until the command has ended."""
        until(lambda: self._tmux("has-session").returncode, LIMIT_S)

    def type_text(self, text: str) -> None:
        """Type `text` and Enter."""
        self._tmux("send-keys", "-l", text)
        self.wait_for(re.escape(text))
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them, one after the other."""
        for key in keys:
            time.sleep(_KEYS_S)
            self._tmux("send-keys", key)

    def wait_for(self, pattern: str | re.Pattern[str]) -> None:
        """Wait until the screen shows `pattern`."""
        try:
            until(lambda: re.search(pattern, self.screen()), LIMIT_S)
        except AssertionError as error:
            raise AssertionError(f"no {pattern!r} on the screen:\n{self.screen()}") from error

    def screen(self) -> str:
        """Return what the terminal shows."""
        return self._tmux("capture-pane", "-p").stdout

    def _tmux(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["tmux", "-L", self._socket, *words],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )


class TerminalClient:
    """Claude Code in a terminal; as a context manager it ends with the terminal."""

    def __init__(
        self, bench: Bench, url: str, *, prefix: Sequence[str] = (), seen_root: Path | None = None
    ) -> None:
        """Prepare the home of `bench`; `prefix` runs the client so that it sees `seen_root`."""
        self.terminal = Terminal()
        self._bench = bench
        self._prefix = tuple(prefix)
        self._root = seen_root or bench.root
        sandbox = ClientSandbox(self._root / "home", self._root / "tmp", url, fake_key())
        self._environment = isolated_environment(sandbox, os.environ["PATH"]) | {
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "CLAUDE_CONFIG_DIR": str(self._root / "home" / ".claude"),
            **bench.extra,
        }
        self._write_settings()

    def __enter__(self) -> Self:
        """Return the client, not yet started."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the terminal, with all that runs in it."""
        self.terminal.__exit__(kind, error, traceback)

    def start(self, *arguments: str) -> None:
        """Start the client with `arguments` and wait until it takes a prompt."""
        # Without a mode the client starts in auto mode, or asks which one is to be the default.
        mode = ("--permission-mode", "default")
        command = [*self._prefix, str(self._bench.client.program), *mode, *arguments]
        self.terminal.start(command, self._bench.project, self._environment)
        self.terminal.wait_for(_READY)

    def run_headless(self, *arguments: str) -> None:
        """Run the client with `-p` to its end."""
        command = [*self._prefix, str(self._bench.client.program), "-p", *arguments]
        process = subprocess.run(
            command,
            cwd=self._bench.project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr

    def stop(self) -> None:
        """Leave the client as a person does, and wait until it is gone."""
        self.terminal.type_text("/exit")
        self.terminal.wait_for_end()

    def type_prompt(self, text: str, cache_read: int, cache_write: int) -> None:
        """Type a prompt, and wait for the status line that counts the last response to it."""
        expected = {
            "cache_read_input_tokens": cache_read,
            "cache_creation_input_tokens": cache_write,
        }
        self.terminal.type_text(text)
        until(lambda: expected.items() <= self._last_usage().items(), LIMIT_S)
        until(lambda: _BUSY not in self.terminal.screen(), LIMIT_S)

    def status_lines(self) -> list[dict[str, Any]]:
        """Return the payloads of the status line so far."""
        path = self._bench.root / "statusline.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _last_usage(self) -> dict[str, int]:
        last = self.status_lines()[-1:]
        return (last[0]["context_window"]["current_usage"] or {}) if last else {}

    def _write_settings(self) -> None:
        self._bench.config.mkdir(parents=True, exist_ok=True)
        answer_first_questions(self._bench.config, self._root / "project")
        # One write a payload: two status lines may run at the same time.
        target = shlex.quote(str(self._root / "statusline.jsonl"))
        line = f'payload=$(cat); printf "%s\\n" "$payload" >> {target}'
        settings = {"statusLine": {"type": "command", "command": line}}
        (self._bench.config / "settings.json").write_text(json.dumps(settings))
