"""Running the command line as a person does: a process of its own, with an environment of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from flightlog.cli.main import cli, run_command

FLIGHTLOG = Path(sys.executable).parent / "flightlog"


class Ran(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str


def environment(config_dir: Path | None, **more: str) -> dict[str, str]:
    """An environment that knows nothing of this machine but where programs are."""
    home = (config_dir or Path(tempfile.mkdtemp(prefix="flightlog-empty-"))) / "home"
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "FLIGHTLOG_HOME": str(home),
    }
    return {**variables, **({"CLAUDE_CONFIG_DIR": str(config_dir)} if config_dir else {}), **more}


def flightlog(config_dir: Path | None, *arguments: str, **more: str) -> Ran:
    """Run `flightlog` on the recordings below `config_dir`."""
    ran = subprocess.run(
        [FLIGHTLOG, *arguments],
        env=environment(config_dir, **more),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Ran(
        ran.returncode,
        ran.stdout.decode("utf-8", "surrogateescape"),
        ran.stderr.decode("utf-8", "surrogateescape"),
    )


def within(config_dir: Path | None, *arguments: str, color: bool = False, **more: str) -> Ran:
    """Run `flightlog` in this process: quicker, and the same but for the terminal."""
    with CliRunner().isolation(env=environment(config_dir, **more), color=color) as (out, err, _):
        code = run_command(cli, "flightlog", arguments)
        return Ran(
            code, *(stream.getvalue().decode("utf-8", "surrogateescape") for stream in (out, err))
        )


def on_a_terminal(config_dir: Path, *arguments: str) -> str:
    """Run `flightlog` on a real terminal, where colours and escape sequences would work."""
    ours, theirs = os.openpty()
    child = subprocess.Popen(
        [FLIGHTLOG, *arguments],
        env={**environment(config_dir), "TERM": "xterm-256color"},
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    screen = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            screen += chunk
    except OSError:
        pass  # the other end of a terminal that was closed
    os.close(ours)
    child.wait(60)
    return screen.decode("utf-8", "replace")
