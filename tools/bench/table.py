"""One table: what was measured, the bar it must pass, and whether it did."""

from tools.bench.measure import Result


class Table:
    """Prints rows as they come and remembers what failed."""

    def __init__(self) -> None:
        """Begin."""
        self.failed: list[str] = []

    def title(self, text: str) -> None:
        """Begin a part."""
        print(f"\n## {text}\n", flush=True)

    def results(self, title: str, rows: dict[str, Result]) -> None:
        """Print the medians of a race."""
        self.title(title)
        for result in rows.values():
            times = f"report {result.printed_s:8.3f} s   end {result.wall_s:8.3f} s   cpu {result.cpu_s:8.3f} s"
            print(f"  {result.name:28} {times}   {result.rss_mb:6.0f} MB", flush=True)

    def ratio(self, name: str, value: float, bar: float) -> None:
        """A ratio that must reach `bar`; a bar of 0 is for information."""
        self._row(name, f"{value:.2f} x", f">= {bar:g} x" if bar else "", good=value >= bar)

    def most(self, name: str, value: float, bar: float) -> None:
        """A figure that must not pass `bar`."""
        self._row(name, f"{value:.3g}", f"<= {bar:g}", good=value <= bar)

    def least(self, name: str, value: float, bar: float) -> None:
        """A figure that must reach `bar`."""
        self._row(name, f"{value:.3g}", f">= {bar:g}", good=value >= bar)

    def truth(self, name: str, value: bool) -> None:  # noqa: FBT001 - the value itself
        """Something that must hold."""
        self._row(name, "yes" if value else "NO", "yes", good=value)

    def note(self, name: str, value: object) -> None:
        """A figure without a bar."""
        print(f"{name:44} {value}", flush=True)

    def _row(self, name: str, value: str, bar: str, *, good: bool) -> None:
        if not good:
            self.failed.append(name.strip())
        print(f"{name:44} {value:>10}   {bar:10} {'ok' if good else 'MISSED'}", flush=True)
