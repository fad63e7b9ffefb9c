"""Documents made to cost time or memory: each command that reads one refuses it quickly, in little memory."""

import os
import subprocess
import sys
import zipfile

import pytest

MEMORY_MB_MAX = 200
CPU_S_MAX = 4  # twice the promise: other tests run beside this one
RUN = "model: m\nwork_dir: .\nsessions: "
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
TRAJECTORY = '{"schema_version": "ATIF-v1.6", "subagent_trajectories": ['
FILES = {
    "run.yaml": RUN + "[" * 2000,
    "laughs.yaml": LAUGHS,
    "plan.yaml": "plan: x\ntasks: " + "[" * 100_000,
    "deep.json": "[" * 5_000_000,
    "long.json": '[{"title": "' + "x" * 80_000_000 + '"}]',
    "trajectory.json": TRAJECTORY * 300 + "]}" * 300,
    "values.json": "[" + "[]," * 3_000_000 + "[]]",
    "flightlog.toml": "[lab]\nx = " + "[" * 5000,
}
PROGRAM = """
import resource, subprocess, sys
ran = subprocess.run([sys.executable, "-m", "flightlog", *sys.argv[1:]], stdin=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(ran.returncode, used.ru_maxrss // 1024, used.ru_utime + used.ru_stime)
"""


def run_measured(folder, *words):
    """Run a command; return its exit code, megabytes, processor seconds and everything it printed."""
    home = {
        "HOME": str(folder),
        "FLIGHTLOG_HOME": str(folder / "data"),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
    }
    environment = {"PATH": os.environ["PATH"], **home}
    command = [sys.executable, "-c", PROGRAM, *words]
    ran = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    code, memory, seconds = ran.stdout.split("\n")[-2].split()
    return int(code), int(memory), float(seconds), ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        ("lab run run.yaml --tag x", 4, "nested deeper than 200 levels"),
        ("lab run laughs.yaml", 4, "more than 400,000 values"),
        ("loop run --plan plan.yaml", 2, "nested deeper than 200 levels"),
        ("retro analyze deep.json", 3, "nested too deeply"),
        ("retro analyze long.json", 3, "longer than 32 MB"),
        ("lab lint trajectory.json", 1, "nested deeper than 200 levels"),
        ("lab lint values.json", 1, "more than 2,000,000 values"),
        ("config show flightlog.toml", 4, "recursion"),
    ],
)
def test_command_refuses_a_hostile_file_in_bounded_time_and_memory(tmp_path, command, code, why):
    for name in set(command.split()) & FILES.keys():
        (tmp_path / name).write_text(FILES[name])

    got, memory, seconds, output = run_measured(
        tmp_path, *command.removesuffix(" flightlog.toml").split()
    )

    assert (got, "Traceback" in output, why in output) == (code, False, True), output
    assert (memory <= MEMORY_MB_MAX, seconds <= CPU_S_MAX) == (True, True), (memory, seconds)


@pytest.mark.parametrize("unit", [b"[", b"x", b"[[]]"])
def test_zip_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path, unit):
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("conversations.json", b'[{"a": "' + unit * (20_000_000 // len(unit)))

    code, memory, seconds, output = run_measured(
        tmp_path, "retro", "analyze", str(tmp_path / "export.zip")
    )

    assert (code, "50 times its size" in output) == (3, True), output
    assert (memory <= MEMORY_MB_MAX, seconds <= CPU_S_MAX) == (True, True), (memory, seconds)
