"""`flightlog serve` as a program: what it prints, who can reach it, how it ends."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from recordings import config_dir


@pytest.fixture
def machine(tmp_path):
    config = config_dir(tmp_path / "config", "2.1.325/single-turn")
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(config)}


def started(machine, *options):
    command = [sys.executable, "-m", "flightlog", "serve", *options]
    # As a shell starts what it puts into the background: with SIGINT ignored.
    quiet = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    return subprocess.Popen(quiet, env=machine, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_prints_an_address_that_answers_and_ends_when_interrupted(machine, tmp_path):
    served = started(machine | {"FLIGHTLOG_HOME": str(tmp_path / "data")}, "--port", "0", "--json")
    address = json.loads(served.stdout.readline())["address"]
    root, _, token = address.partition("/?token=")
    cookie = f"flightlog-{root.rsplit(':', 1)[1]}={token}"
    request = urllib.request.Request(root + "/", headers={"Cookie": cookie})

    with urllib.request.urlopen(request, timeout=20) as answer:
        page = answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(root + "/", timeout=20)
    arguments = Path(f"/proc/{served.pid}/cmdline").read_text()
    served.send_signal(signal.SIGINT)
    _, complaints = served.communicate(timeout=20)

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", root)
    assert "Sessions" in page
    assert token not in arguments
    assert served.returncode == 130
    assert "Traceback" not in complaints
    kept = tmp_path / "data" / "web" / "token"
    assert (kept.read_text().strip(), stat.S_IMODE(kept.stat().st_mode)) == (token, 0o600)


def test_a_taken_port_is_said_with_the_next_command(machine):
    first = started(machine)
    port = re.search(r":(\d+)/", first.stdout.readline())[1]

    second = started(machine, "--port", port)
    _, said = second.communicate(timeout=20)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=20)

    assert (second.returncode, f"port {port} is taken" in said, "--port 0" in said) == (75, True, True)


def test_without_the_extra_it_says_how_to_get_it(machine, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    blocker = "import sys, importlib.util as u; real = u.find_spec\n"
    blocker += "class No:\n    def find_spec(self, name, path=None, target=None):\n"
    blocker += "        if name == 'aiohttp': raise ModuleNotFoundError(name, name=name)\n"
    (hidden / "sitecustomize.py").write_text(blocker + "sys.meta_path.insert(0, No())\n")

    served = started(machine | {"PYTHONPATH": str(hidden)})
    _, said = served.communicate(timeout=20)

    assert (served.returncode, "pip install 'flightlog[web]'" in said) == (69, True)


def test_the_pages_need_no_extra_but_their_own():
    missing = "brotli numpy stamina sklearn scipy distributed pyarrow textual"
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r}.split()))\n"
        "import flightlog.web.command, flightlog.web.pages, flightlog.web.server, flightlog.app.lab_replay"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")
