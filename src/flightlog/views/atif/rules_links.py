"""Rules about what a document refers to: pictures, sounds, continuations, subagents."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from flightlog.views.atif.findings import LintFinding
from flightlog.views.atif.values import dict_field, iter_dicts, iter_results

Exists = Callable[[str], bool]


def link_rules(document: dict[str, Any], exists: Exists, minor: int) -> Iterator[LintFinding]:
    """Yield references that lead nowhere, and embedded subagents nobody refers to."""
    embedded = [inside.get("trajectory_id") for _, inside in iter_dicts(document, "subagent_trajectories")]
    named: set[str] = set()
    for place, step in iter_dicts(document, "steps"):
        where = f"steps[{place}]"
        yield from _check_pictures(step.get("message"), f"{where}.message", exists)
        for number, result in iter_results(step):
            at = f"{where}.observation.results[{number}]"
            yield from _check_pictures(result.get("content"), f"{at}.content", exists)
            for which, ref in iter_dicts(result, "subagent_trajectory_ref"):
                named.add(str(ref.get("trajectory_id")))
                yield from _check_ref(ref, f"{at}.subagent_trajectory_ref[{which}]", embedded, exists, minor=minor)
    yield from _check_file(document.get("continued_trajectory_ref"), "continued_trajectory_ref", exists)
    yield from _check_embedded(document, embedded, named)


def _check_embedded(document: dict[str, Any], embedded: list[Any], named: set[str]) -> Iterator[LintFinding]:
    counts = Counter(each for each in embedded if isinstance(each, str))
    own = document.get("trajectory_id")
    for place, name in enumerate(embedded):
        where = f"subagent_trajectories[{place}].trajectory_id"
        if not isinstance(name, str):
            yield LintFinding("missing", where, "an embedded trajectory needs one")
        elif counts[name] > 1 or name == own:
            yield LintFinding("repeated-id", where, f"{name[:60]!r} is another trajectory's as well")
        elif name not in named:
            yield LintFinding("unreferenced", where, f"nothing refers to {name[:60]!r}")


def _check_ref(
    ref: dict[str, Any], where: str, embedded: list[Any], exists: Exists, *, minor: int
) -> Iterator[LintFinding]:
    path, name = ref.get("trajectory_path"), ref.get("trajectory_id")
    if minor < 7 and ref.get("session_id") is None:
        yield LintFinding("unlinked", where, "session_id is required up to version 1.6")
    if minor >= 7 and path is None and name is None:
        yield LintFinding("unlinked", where, "trajectory_id or trajectory_path is required from version 1.7 on")
    yield from _check_file(path, f"{where}.trajectory_path", exists)
    if name is not None and path is None and name not in embedded:
        yield LintFinding("dangling-id", f"{where}.trajectory_id", "no trajectory in this document has that id")


def _check_pictures(content: Any, where: str, exists: Exists) -> Iterator[LintFinding]:
    for place, part in iter_dicts({"parts": content}, "parts"):
        yield from _check_file(dict_field(part, "source").get("path"), f"{where}[{place}].source.path", exists)


def _check_file(path: Any, where: str, exists: Exists) -> Iterator[LintFinding]:
    if not isinstance(path, str) or "://" in path:
        return
    if path.startswith(("/", "~")) or ".." in path.replace("\\", "/").split("/") or path[1:3] == ":\\":
        yield LintFinding("outside", where, "leaves the document's directory")
    if not exists(path):
        yield LintFinding("missing-file", where, "no such file")
