"""The pages as one: no link leads nowhere, one search finds everything, every empty room says what to do."""

import shutil
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest

from support.pages import WEB_ROOT, running
from support.real_agent import make_bench
from support.recordings import ROOT
from support.traced import build

CASES = ("2.1.325/subagent-foreground", "2.1.325/compaction-manual", "2.1.325/odd-outputs")
PAGES_MAX = 1500


class Links(HTMLParser):
    """What a page refers to, and the places in it one can refer to."""

    def __init__(self, text):
        super().__init__()
        self.to, self.ids = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.add(attributes.get("id"))
        names = ["src", "hx-get", *(["href"] if tag in {"a", "link"} else [])]
        names += (
            ["action"] if tag == "form" and attributes.get("method", "get").lower() == "get" else []
        )
        self.to |= {attributes[name] for name in names if attributes.get(name)}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = build(make_bench(tmp_path_factory.mktemp("whole") / "machine"))
    for case in CASES:
        shutil.copytree(
            ROOT / case / "transcripts", made.config / "projects" / case.replace("/", "-")
        )
    return made


@pytest.fixture
def pages(project, monkeypatch):
    monkeypatch.chdir(project.top)
    for name, value in project.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project.config))
    with running(project.config) as pages:
        pages.ask(
            "/search?q=totals"
        )  # the list is looked at in the background; the search waits for it
        yield pages


def crawl(pages, *starts):
    """Ask for every address there is, each once; return those that lead nowhere, and on which page they stand."""
    waiting = [(start, "") for start in starts]
    seen, broken, texts = set(), [], {}
    while waiting:
        address, on = waiting.pop()
        path, fragment = urldefrag(address)
        if path not in seen:
            seen.add(path)
            assert len(seen) < PAGES_MAX, "the pages have no end"
            # Every filter leads to every other one; one of them at a time is enough.
            several = path.count("=") + path.count("%3A") > 2
            if path.endswith("/live") or (several and path.startswith(("/usage?", "/search?"))):
                continue
            answer = pages.ask(path)
            if answer.status == 303:  # it leads on: what it leads to must be there
                texts[path] = Links("")
                waiting.append(
                    (urljoin(path, answer.headers["Location"].removeprefix(WEB_ROOT)), on)
                )
                continue
            if answer.status not in {200, 204}:
                broken.append((address, on, answer.status))
            texts[path] = Links(
                answer.text if "html" in (answer.headers["Content-Type"] or "") else ""
            )
            targets = (urljoin(path, link) for link in texts[path].to)
            waiting += [
                (target, path)
                for target in sorted(targets)
                if not urlsplit(target).netloc and target.startswith("/")
            ]
        if fragment and path in texts and fragment not in texts[path].ids:
            broken.append((address, on, "no such place on the page"))
    return seen, broken


def test_no_link_on_any_page_leads_nowhere(pages, project):
    seen, broken = crawl(pages, "/", "/search?q=tax", f"/trace?address={project.commit}")

    assert broken == []
    for family in (
        "/live",
        "/usage",
        "/loops",
        "/retro",
        "/dataset",
        "/privacy",
        "/doctor",
        "/search",
        "/more",
        "/findings",
    ):
        assert family in seen
    assert any(path.startswith("/loops/session-001") for path in seen)
    assert sum(path.startswith("/trace?address=") for path in seen) > 20
    assert sum(path.startswith("/sessions/") for path in seen) > 30


def test_one_search_finds_sessions_runs_loops_findings_and_issues(pages, project):
    text = pages.ask("/search?q=tax").text
    issue = pages.ask("/search?q=rounded+too").text
    finding = pages.ask("/search?q=claude-opus").text

    assert f'href="/sessions/{project.session}"' in text, "by its title"
    assert f'href="/sessions/{project.session}?at=1' in text, "by its words, at the step"
    assert "address=run%3Atax/session_01" in text
    assert "address=task%3Asession-001-shop/001" in pages.ask("/search?q=totals").text
    assert f"address=issue%3A{project.issue}" in issue
    assert "address=finding%3Acost-models" in finding
    assert "No results for" in pages.ask("/search?q=zzzzqqq").text
    assert "<script>x" not in pages.ask("/search?q=%3Cscript%3Ex").text


def test_the_trace_page_shows_every_kind_and_what_is_broken_is_said(pages, project):
    html = pages.ask(f"/trace?address={project.commit}").text

    for kind in ("session", "step", "request", "hunk", "row", "task", "run", "finding", "issue"):
        assert f'id="kind-{kind}"' in html
    assert f"/sessions/{project.session}?at=1.1#1.1" in html
    assert pages.ask("/trace?address=nothing-like-it").status == 404
    assert pages.ask("/trace?address=%3Cb%3E").status in {400, 404}
    assert "Enter an address" in pages.ask("/trace").text
    assert (
        f"/trace?address=session:{project.session}"
        in pages.ask(f"/sessions/{project.session}").text
    )


def test_dataset_privacy_and_doctor_have_pages(pages, project):
    dataset, privacy, doctor = (
        pages.ask(path).text for path in ("/dataset", "/privacy", "/doctor?whole")
    )

    assert "<dt>Sessions</dt><dd><b>1</b>" in dataset
    assert "tracked/*.jsonl" in privacy
    assert "sessions, " in doctor
    assert "registered" in doctor


def test_empty_pages_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("FLIGHTLOG_HOME", str(tmp_path / "home"))

    with running(tmp_path / "config") as pages:
        answers = {
            path: pages.ask(path)
            for path in ("/dataset", "/privacy", "/doctor?whole", "/search", "/trace")
        }

    assert {path: answer.status for path, answer in answers.items()} == dict.fromkeys(answers, 200)
    assert "flightlog dataset session sync-to-jsonl" in answers["/dataset"].text
    assert "None found in 0 sessions" in answers["/privacy"].text
    assert "flightlog demo" in answers["/doctor?whole"].text
    assert not (tmp_path / ".git-ml").exists()
