"""What a person sees while a run is carried out: one line per event on stderr, with time and cost."""

import sys
import threading
import time

import click

from flightlog.model.text import make_inert


class RunProgress:
    """Tells what happens; on a terminal also each answer, on a line that is written over."""

    def __init__(self) -> None:
        """Begin the clock."""
        self._began = time.monotonic()
        self._answers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._live = sys.stderr.isatty()

    def __call__(self, session: str, words: str, spent_usd: float) -> None:
        """Tell one thing; without words, that a session got an answer."""
        with self._lock:
            if not words:
                self._answers[session] = self._answers.get(session, 0) + 1
            steps = self._answers.get(session, 0)
            seconds = time.monotonic() - self._began
            line = make_inert(
                f"{seconds:7.1f} s  {session:<15} {words or 'at work':<18} {steps:>3} answers  ${spent_usd:.4f}"
            )
            if words:
                click.echo(("\r\x1b[K" if self._live else "") + line, err=True)
            elif self._live:
                click.echo("\r\x1b[K" + line, err=True, nl=False)


class SamplingProgress:
    """Tells how far a batch of samples is, on a line that is written over; silent when nobody watches."""

    def __init__(self) -> None:
        """Begin the clock."""
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()

    def __call__(self, done: int, whole: int, spent_usd: float) -> None:
        """Show how far it is."""
        if self._live:
            seconds = time.monotonic() - self._began
            end = "\n" if done == whole else ""
            click.echo(
                f"\r\x1b[K{seconds:7.1f} s  {done} of {whole} samples  ${spent_usd:.4f}{end}", err=True, nl=False
            )
