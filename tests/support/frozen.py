"""What flightlog prints, serves and writes on one sample archive, for the golden files of the freeze.

The sample holds every recording of a real agent, and the directories of every feature that the kept layouts
have. Commands run one after the other in a process of their own, `python tests/support/frozen.py`, whose clock stands
still and whose ids are counted, so that two runs print the same bytes.
"""

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT_NAME = "/sample"
NOW_S = 1_794_836_400  # 2026-11-16T13:40Z, half an hour after the last recording
RUNNING = ("5057f83a", "fd162675")  # sessions whose transcript changed a minute ago
KEY = "5eed" * 16
SHOP = "def total(prices, tax):\n    net = sum(prices)\n    return round(net * (1 + tax), 2)\n"
WIDTH = "100"
WORK_DIR = "work"  # of the sample's run, below its project


@contextmanager
def sample() -> Iterator[Path]:
    """Make the sample below a path of fixed length, since tables are as wide as the paths in them."""
    from support.layouts import VERSIONS, unpack_version
    from support.recordings import FROZEN_CASES, config_dir

    with tempfile.TemporaryDirectory(prefix="frozen-", dir="/tmp") as made:
        root = unpack_version(VERSIONS[-1], Path(made))
        config_dir(root / "home" / ".claude", *FROZEN_CASES)
        (root / "flightlog" / "privacy.key").write_text(f"{KEY}\n")
        _commit_project(root / "project")
        for path in root.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
            changed_s = NOW_S - (60 if path.name.startswith(RUNNING) else 3600)
            os.utime(path, (changed_s, changed_s))
        (root / "flightlog").chmod(0o700)
        yield root


def _commit_project(project: Path) -> None:
    (project / "work").mkdir()
    (project / "README").write_text("A shop.\n")
    (project / "shop.py").write_text(SHOP)
    (project / "work" / "tax.py").write_text("GERMANY = 0.19\nFRANCE = 0.20\n")
    when = {f"GIT_{who}_DATE": "2026-11-16T13:08:37Z" for who in ("AUTHOR", "COMMITTER")}
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(project),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **when,
    }
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "README", "shop.py", "work"],
        [*who, "commit", "-qm", "Shop"],
    ):
        subprocess.run(["git", *words], cwd=project, env=env, check=True)


def environment(root: Path) -> dict[str, str]:
    """Return the variables a command sees: nothing of this machine but where programs are."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(root / "home"),
        "CLAUDE_CONFIG_DIR": str(root / "home" / ".claude"),
        "FLIGHTLOG_HOME": str(root / "flightlog"),
        "FLIGHTLOG_CLAUDE": str(root / "no-agent"),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "COLUMNS": WIDTH,
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }


def run_in_child(root: Path, *work: str) -> dict[str, str]:
    """Run `work` ("commands GROUP", "pages" or "files") on the sample; return the text of each golden file."""
    program = [sys.executable, __file__, str(root), *work]
    ran = subprocess.run(
        program, env=environment(root), cwd=root / "project", capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    texts = json.loads(ran.stdout)
    return {name: normalize(text, root) for name, text in texts.items()}


VARYING = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"[0-9.]+ [GMT]B free", "N GB free"),
        (rf"/home/dev/project/{WORK_DIR}/", "WORK_TREE/"),
        (r'("index_bytes": )\d+|(index )[0-9,]+( bytes)', r"\1\2N\3"),  # depends on SQLite
        (r"[\w./-]+/python[\d.]* -I -S [\w./-]+/src/flightlog/", "PYTHON -I -S FLIGHTLOG/"),
        (r'( data-have=")\w+', r"\1N"),  # a fingerprint with inode numbers
        (r"(\bhave=)\d+[.]\d+", r"\1N"),  # how often the list was read
        (r'("(?:device|inode)": ?)\d+', r"\1N"),
        (r'("checksum": ?)"\w+"', r"\1N"),  # a hash over the above
        (r"process \d+ on [\w.-]+", "process N on HOST"),
        (r'("(?:ts|started_at|finished_at)": ?)"2[^"]+"', r"\1N"),  # lab reads the clock by itself
        (r'("version":)"\w{24}"', r"\1N"),  # a hash with inode numbers
        (r"[0-9,]+ bytes before", "N bytes before"),
        # The files below `web/static` are looked at as pictures.
        (r"(?s)<(style|script)>.*?</(?:style|script)>", r"<\1>OUR FILES</\1>"),
        (r"sha256-[\w+/]+=*(?=&#39;)", "sha256-N"),
    )
)
# Databases, git objects and locks: flightlog does not decide their bytes, or they name a process.
NOT_LISTED = re.compile(r"[.]db(-\w+)?$|/objects/|[.]bin$|lock$|/index$")
# Listed without a hash: compressed, or made of inode numbers and times of this machine.
NOT_HASHED = re.compile(r"[.]zst$|/[.]verified$|/dataset/writer$")


def normalize(text: str, root: Path) -> str:
    """Replace what differs from machine to machine."""
    text = text.replace(str(root), ROOT_NAME).replace(str(Path(sys.executable).parent), "/bin")
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return text


def _fix_clock_and_ids() -> None:
    """Stop the clock of this process and count its ids; done before flightlog is imported."""
    numbers = itertools.count(1)
    time.time = lambda: float(NOW_S)
    time.time_ns = lambda: NOW_S * 1_000_000_000
    uuid.uuid4 = lambda: uuid.UUID(int=0xF << 124 | next(numbers))


def _command_texts(root: Path, group: str) -> dict[str, str]:
    from support.frozen_commands import invocations

    texts: dict[str, str] = {}
    for name, words in invocations(group):
        texts[name] = texts.get(name, "") + _transcript(words)
    return texts


def _transcript(words: list[str]) -> str:
    from click.testing import CliRunner

    from flightlog.cli.main import cli, run_command

    with CliRunner().isolation() as (out, err, _):
        code = run_command(cli, "flightlog", words)
        printed, errors = (
            stream.getvalue().decode("utf-8", "surrogateescape") for stream in (out, err)
        )
    lines = [f"$ flightlog {' '.join(words)}", f"[exit {code}]"]
    lines += [printed.rstrip("\n")] if printed else []
    lines += ["[stderr]", errors.rstrip("\n")] if errors else []
    return "\n".join(lines) + "\n\n"


def _page_texts(root: Path) -> dict[str, str]:
    from support.frozen_commands import PAGES, page_name
    from support.pages import running

    config = root / "home" / ".claude"
    texts = {}
    with running(config, clock=lambda: NOW_S * 1000, data_dir=root / "flightlog") as pages:
        pages.ask("/search?q=totals")  # the list is read in the background; a search waits for it
        for path in PAGES:
            answer = pages.ask(path)
            texts[page_name(path)] = (
                f"[{answer.status} {answer.headers['Content-Type']}]\n{answer.text}\n"
            )
    return texts


def _file_texts(root: Path, feature: str) -> dict[str, str]:
    from support.frozen_commands import WRITES

    (root / "out").mkdir()
    lines, folders = WRITES[feature]
    before = {folder: _hashes(root / folder, root) for folder in folders}
    ran = "".join(_transcript(line.format(root=root).split(" ")) for line in lines)
    changed = "".join(
        _changes(folder, before[folder], _hashes(root / folder, root)) for folder in folders
    )
    return {f"files-{feature}": ran + changed}


def _hashes(folder: Path, root: Path) -> dict[str, str]:
    """Return the mode, and a hash of the normalized bytes, of each file below `folder`."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not NOT_LISTED.search(str(path)):
            text = path.read_bytes().decode("utf-8", "surrogateescape")
            data = normalize(text, root).encode("utf-8", "surrogateescape")
            digest = "-" if NOT_HASHED.search(str(path)) else hashlib.sha256(data).hexdigest()[:16]
            hashes[str(path.relative_to(folder))] = f"{path.stat().st_mode & 0o777:o} {digest}"
    return hashes


def _changes(folder: str, before: dict[str, str], after: dict[str, str]) -> str:
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return "".join(f"{after.get(name, 'deleted')} {folder}/{name}\n" for name in names)


if __name__ == "__main__":
    _fix_clock_and_ids()
    sample_root = Path(sys.argv[1])
    os.umask(0o022)
    match sys.argv[2:]:
        case ["commands", group]:
            result = _command_texts(sample_root, group)
        case ["pages"]:
            result = _page_texts(sample_root)
        case ["files", feature]:
            result = _file_texts(sample_root, feature)
    sys.stdout.write(json.dumps(result))
