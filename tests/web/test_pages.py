import os
import re
import stat
import subprocess
import sys

_OPENED = "from flightlog.app.runtime import open_runtime; from flightlog.web.auth import open_browser, web_root; "
SAY = f"{_OPENED}print(web_root(open_runtime()))"
OPEN = f"{_OPENED}print(open_browser(open_runtime(), 'http://127.0.0.1:1/?token=' + 't' * 40))"


def run_program(program, home, **more):
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "FLIGHTLOG_HOME": str(home),
    } | more
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )


def test_root_path_is_made_once_and_private(tmp_path):
    first = run_program(SAY, tmp_path).stdout.strip()
    file = tmp_path / "web" / "root"

    assert re.fullmatch("/[0-9a-f]{32}", first)
    assert run_program(SAY, tmp_path).stdout.strip() == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_root_path_that_others_could_read_or_guess_is_replaced(tmp_path):
    first = run_program(SAY, tmp_path).stdout.strip()
    file = tmp_path / "web" / "root"
    file.chmod(0o644)

    second = run_program(SAY, tmp_path).stdout.strip()
    file.write_text("short\n")

    assert second != first
    assert run_program(SAY, tmp_path).stdout.strip() not in {first, second, "/short"}


def test_a_browser_is_given_a_private_file_and_never_the_token(tmp_path):
    note = tmp_path / "arguments"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >{note}\n')
    browser.chmod(0o755)

    run_program(OPEN, tmp_path, BROWSER=f"{browser} %s")

    assert "token" not in note.read_text()
    lead = tmp_path / "web" / "open.html"
    assert stat.S_IMODE(lead.stat().st_mode) == 0o600
    assert "url=http://127.0.0.1:1/?token=" in lead.read_text()
