"""`flightlog serve` as a program: what it prints, who can reach it, how it ends."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.recordings import config_dir

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machine(tmp_path):
    config = config_dir(tmp_path / "config", "2.1.325/single-turn")
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(config)}


def start_server(machine, *options):
    command = [sys.executable, "-m", "flightlog", "serve", *options]
    # As a shell starts what it puts into the background: with SIGINT ignored.
    quiet = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    return subprocess.Popen(
        quiet, env=machine, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_serve_prints_an_address_that_answers_and_ends_on_interrupt(machine, tmp_path):
    served = start_server(
        machine | {"FLIGHTLOG_HOME": str(tmp_path / "data")}, "--port", "0", "--json"
    )
    address = json.loads(served.stdout.readline())["url"]
    root, _, token = address.partition("/?token=")
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    with browser.open(address, timeout=20) as answer:
        page = answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(root + "/", timeout=20)
    arguments = Path(f"/proc/{served.pid}/cmdline").read_text()
    served.send_signal(signal.SIGINT)
    _, complaints = served.communicate(timeout=20)

    name = re.fullmatch(r"http://127\.0\.0\.1:\d+/([0-9a-f]{32})", root)[1]
    assert "Sessions" in page
    assert token not in arguments
    assert served.returncode == 130
    assert "Traceback" not in complaints
    root_file = tmp_path / "data" / "web" / "root"
    assert (root_file.read_text().strip(), stat.S_IMODE(root_file.stat().st_mode)) == (name, 0o600)
    assert token not in "".join(path.read_text() for path in (tmp_path / "data" / "web").iterdir())


def test_without_the_scripts_a_page_offers_buttons_and_links(machine, tmp_path):
    copy = tmp_path / "src"
    ignored = shutil.ignore_patterns("vendor", "__pycache__")
    shutil.copytree(ROOT / "src/flightlog", copy / "flightlog", ignore=ignored)
    served = start_server(machine | {"PYTHONPATH": str(copy)}, "--port", "0", "--json")
    address = json.loads(served.stdout.readline())["url"]
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    browser.open(address, timeout=20).close()
    with browser.open(address.partition("?")[0] + "?q=greeting", timeout=20) as answer:
        page = answer.read().decode()
    served.send_signal(signal.SIGINT)
    served.communicate(timeout=20)

    assert "Charts and live filters are not installed." in page
    assert "<noscript>" not in page
    assert "<button>Filter</button>" in page
    assert "Search session content</a>" in page


def test_each_start_has_a_new_token_below_the_same_path(machine):
    addresses = []
    for _ in range(2):
        served = start_server(machine, "--json")
        addresses.append(json.loads(served.stdout.readline())["url"])
        served.send_signal(signal.SIGINT)
        served.communicate(timeout=20)

    first, second = (
        re.fullmatch(r"http://127[.]0[.]0[.]1:\d+(/\w+/)[?]token=(.+)", address)
        for address in addresses
    )
    assert first[1] == second[1]
    assert first[2] != second[2]


def test_half_requests_are_closed_and_malformed_ones_leave_stderr_clean(machine):
    served = start_server(machine, "--json")
    port = int(re.search(r":(\d+)/", json.loads(served.stdout.readline())["url"])[1])
    halves = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(100)]
    for half in halves:
        half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
    answers = []
    for wrong in (b"\x16\x03\x01\x00\x00", b"GET / HTTP/9\r\n\r\n", b"G@T / HTTP/1.1\r\nA\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(wrong)
            answers.append(client.recv(100)[:12])

    closed = [
        half.recv(1) for half in halves
    ]  # ends by TimeoutError where a connection is left open
    for half in halves:
        half.close()
    served.send_signal(signal.SIGINT)
    _, complaints = served.communicate(timeout=20)

    assert answers == [b"HTTP/1.0 400"] * 3
    assert closed == [b""] * 100
    assert complaints.split("\n") == ["stop with Ctrl-C", "", "flightlog: interrupted", ""]


def test_port_in_use_is_reported_with_the_next_command(machine):
    first = start_server(machine)
    port = re.search(r":(\d+)/", first.stdout.readline())[1]

    second = start_server(machine, "--port", port)
    _, errors = second.communicate(timeout=20)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=20)

    assert (second.returncode, f"port {port} is in use" in errors, "--port 0" in errors) == (
        75,
        True,
        True,
    )


def test_the_pages_need_no_extra():
    missing = "stamina sklearn scipy distributed pyarrow duckdb"
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r}.split()))\n"
        "import flightlog.web.commands, flightlog.web.pages, flightlog.web.server, flightlog.lab.replay.service"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")
