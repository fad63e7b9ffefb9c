"""An environment in which a client reaches only one model and writes only to its own directories."""

from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.driver import QUIET


class ClientSandbox(Struct, frozen=True):
    """The directories a client may write to, and the model it may reach."""

    home: Path
    temporary: Path
    base_url: str
    key: str
    retries: int = 2


def isolated_environment(sandbox: ClientSandbox, path: str) -> dict[str, str]:
    """Return the whole environment of a client that touches nothing outside `sandbox`."""
    return QUIET | {
        "PATH": path,
        "HOME": str(sandbox.home),
        "TMPDIR": str(sandbox.temporary),
        "CLAUDE_CODE_TMPDIR": str(sandbox.temporary),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": sandbox.base_url,
        "ANTHROPIC_API_KEY": sandbox.key,
        "CLAUDE_CODE_MAX_RETRIES": str(sandbox.retries),
    }
