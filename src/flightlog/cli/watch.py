"""`flightlog watch` on a terminal: the dashboard as an application (Textual).

The lines come from `live.dashboard_text`, so they are inert and fit the width. The state is
collected in a thread; the application itself only draws.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from flightlog.cli.session.story import iter_screen_lines
from flightlog.live.dashboard import Dashboard, DashboardRow
from flightlog.live.dashboard_text import (
    DashboardLine,
    TextStyle,
    foot_lines,
    head_lines,
    percent_bar,
    recent_lines,
    session_lines,
)
from flightlog.live.watch_feed import WatchFeed, pane_command
from flightlog.model.errors import FlightlogError
from flightlog.model.runtime import Runtime
from flightlog.model.text import make_inert, one_line
from flightlog.views.symbols import DASHBOARD_SYMBOLS

STYLES = {"alert": "bold yellow"}
KEYS = """\
 ↑ ↓ PgUp PgDn   choose a session (or the mouse)
 Enter           its last steps, context and cost; Esc closes them
 t               go to its tmux pane
 /               show only sessions with these letters; Esc shows all
 r               collect now
 ?               this list
 q  Ctrl-C       quit

 Sessions that need you come first, with a bell.
"""
KEY_LINE = " Enter steps  t tmux pane  / filter  ? keys  q quit"


def to_text(lines: Iterable[DashboardLine]) -> Text:
    """Return lines with their colors; nothing in them is markup."""
    styled = [Text(line.text, STYLES.get(line.color, line.color), no_wrap=True) for line in lines]
    return Text("\n", no_wrap=True).join(styled)


def _close_screen(screen: Screen[None]) -> None:
    """Close a screen once: a second key may arrive before the first has closed it."""
    if screen.app.screen is screen:
        screen.app.pop_screen()


class KeysScreen(ModalScreen[None]):
    """The list of keys; any key closes it."""

    CSS = "KeysScreen { align: center middle; } #keys { width: 78; height: auto; border: round; }"

    def compose(self) -> ComposeResult:
        """Show the keys."""
        legend = "\n".join(f" {name:17}{text}" for name, text in DASHBOARD_SYMBOLS.items())
        yield Static(Text(KEYS + legend), id="keys")

    def on_key(self) -> None:
        """Close."""
        _close_screen(self)

    on_click = on_key


class SessionScreen(Screen[None]):
    """One session: what it does, its context, cost and problems, and its last steps."""

    CSS = "#facts { height: auto; } #steps { height: 1fr; } #back { height: 1; dock: bottom; }"
    BINDINGS: ClassVar[list[BindingType]] = [("escape,enter,backspace", "back", "Back")]

    def __init__(self, session: str, title: str) -> None:
        super().__init__()
        self.session, self._title, self._shown = session, title, ""

    def compose(self) -> ComposeResult:
        """Lay out facts, steps and keys."""
        yield Static(id="facts")
        with VerticalScroll(id="steps"):
            yield Static(id="lines")
        yield Static(Text(" Esc back  t tmux pane  ? keys  q quit", style="dim"), id="back")

    def action_back(self) -> None:
        """Go back to the dashboard."""
        _close_screen(self)

    def show_facts(self, row: DashboardRow | None) -> None:
        """Show the row of the dashboard; None says that the session has ended."""
        facts = _describe_session(row) if row else [DashboardLine("This session has ended.")]
        title = DashboardLine(one_line(self._title or self.session, self.size.width), "bold")
        self.query_one("#facts", Static).update(to_text([title, *facts, DashboardLine("")]))

    def show_steps(self, lines: Iterable[str]) -> None:
        """Show the last steps; stay at the end if the end was in view."""
        text = "\n".join(lines)
        if text == self._shown:
            return
        steps = self.query_one("#steps", VerticalScroll)
        is_at_end = not self._shown or steps.scroll_offset.y >= steps.max_scroll_y
        self._shown = text
        self.query_one("#lines", Static).update(Text.from_ansi(text))
        if is_at_end:
            self.call_after_refresh(steps.scroll_end, animate=False)


def _describe_session(row: DashboardRow) -> list[DashboardLine]:
    session, context, cost = row.session, row.session.context, row.session.cost
    full = context.tokens_used + context.tokens_left
    usage = f"{percent_bar(context.percent_used)} {context.percent_used}% of {full:,} tokens"
    amounts = []
    if cost is not None and cost.recorded_cost_usd is not None:
        amounts.append(f"${cost.recorded_cost_usd:,.2f} recorded")
    if cost is not None and cost.client_cost_usd is not None:
        amounts.append(f"${cost.client_cost_usd:,.2f} by the client")
    branch = f" ({session.git.branch})" if session.git and session.git.branch else ""
    pane = f"tmux pane {session.tmux.pane}" if session.tmux else "no tmux pane known"
    facts = {
        "state": row.state,
        "project": f"{session.project_path}{branch}",
        "model": f"{session.model.value}, {row.account}, {pane}",
        "context": f"{usage} before compaction",
        "cost": ", ".join(amounts) or "unknown",
        "health": ", ".join(row.problems) or "ok",
    }
    lines = [DashboardLine(f"{name:8} {one_line(text, 200)}") for name, text in facts.items()]
    lines[0] = lines[0]._replace(color="alert" if row.needs else "green")
    return lines


class WatchApp(App[None]):
    """The dashboard; it quits with q, Ctrl-C and Ctrl-Q, and with no other key."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; max-height: 45%; }
    #columns { height: 1; }
    #sessions { height: 1fr; border: none; padding: 0; }
    #sessions > .option-list--option-highlighted {
        color: ansi_black; background: ansi_white;
    }
    #foot { height: auto; max-height: 30%; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit", priority=False),
        ("slash", "filter", "Filter"),
        ("question_mark", "keys", "Keys"),
        ("t", "pane", "tmux pane"),
        ("r", "collect", "Collect"),
        ("escape", "clear_filter", "Show all"),
    ]

    def __init__(self, runtime: Runtime, every_s: float) -> None:
        super().__init__()
        self.theme = "ansi-dark"  # the terminal's own colors: 16 are enough, over ssh too
        self._runtime, self._feed = runtime, WatchFeed(runtime, every_s)
        self._board: Dashboard | None = None
        self._waiting: set[str] | None = None
        self._wake = asyncio.Event()

    def compose(self) -> ComposeResult:
        """Lay out head, sessions, foot and filter."""
        yield Static("flightlog: collecting …", id="head")
        yield Static(id="columns")
        yield OptionList(id="sessions", markup=False)
        yield Input(placeholder="letters of a session, project, state or title", id="filter")
        yield Static(id="foot")

    def on_mount(self) -> None:
        """Start collecting."""
        self.query_one("#sessions").focus()
        self.run_worker(self._collect_forever(), exclusive=True)

    async def _collect_forever(self) -> None:
        while True:
            try:
                board = await asyncio.to_thread(self._feed.load)
            except FlightlogError as error:
                self.notify(make_inert(error.message), severity="error", markup=False)
            else:
                self._show_board(board)
                await self._show_session()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._feed.pause_s)
            self._wake.clear()

    def on_resize(self) -> None:
        """Lay the lines out again for the new width."""
        if self._board is not None:
            self._show_board(self._board)

    def _show_board(self, board: Dashboard) -> None:
        self._board = board
        style = TextStyle(max(self.size.width, 20), self._runtime.zone)
        base = self.screen_stack[0]
        base.query_one("#head", Static).update(to_text(head_lines(board, style)))
        rows = [row for row in board.rows if self._matches_filter(row)]
        lines = session_lines(rows, style, self._feed.titles) if rows else []
        empty = "no session has these letters" if board.rows else "start an agent: it appears here"
        base.query_one("#columns", Static).update(to_text(lines[:1] or [DashboardLine(empty)]))
        self._show_rows(base.query_one("#sessions", OptionList), rows, lines[1:])
        foot = [*recent_lines(board, style), *foot_lines(board), DashboardLine(KEY_LINE, "dim")]
        base.query_one("#foot", Static).update(to_text(foot))
        waiting = {row.session.session_id for row in board.rows if row.needs}
        if self._waiting is not None and waiting - self._waiting:
            self.bell()
        self._waiting = waiting

    def _show_rows(
        self, listing: OptionList, rows: list[DashboardRow], lines: list[DashboardLine]
    ) -> None:
        """Replace what changed; the chosen session stays chosen when the order changes."""
        names = [row.session.session_id for row in rows]
        chosen = listing.highlighted_option.id if listing.highlighted_option else None
        # The chosen row has the colors of the cursor alone, so that it can be read.
        pairs = zip(names, lines, strict=True)
        lines = [line._replace(color="") if name == chosen else line for name, line in pairs]
        if names == [option.id for option in listing.options]:
            for name, line in zip(names, lines, strict=True):
                text = to_text([line])
                if listing.get_option(name).prompt != text:
                    listing.replace_option_prompt(name, text)
            return
        pairs = zip(names, lines, strict=True)
        listing.set_options([Option(to_text([line]), id=name) for name, line in pairs])
        if names:
            listing.highlighted = names.index(chosen) if chosen in names else 0

    def _matches_filter(self, row: DashboardRow) -> bool:
        letters = self.screen_stack[0].query_one("#filter", Input).value.lower().strip()
        session = row.session
        texts = (session.session_id, session.project_path, row.state, row.account)
        title = self._feed.titles.get(session.session_id, "")
        return letters in " ".join([*texts, session.model.value, title]).lower()

    def _find_row(self, session: str | None) -> DashboardRow | None:
        rows = self._board.rows if self._board else ()
        return next((row for row in rows if row.session.session_id == session), None)

    def _chosen_session(self) -> str | None:
        if isinstance(self.screen, SessionScreen):
            return self.screen.session
        option = self.screen_stack[0].query_one("#sessions", OptionList).highlighted_option
        return option.id if option else None

    async def _show_session(self) -> None:
        """Bring the open session up to date."""
        screen = self.screen
        if not isinstance(screen, SessionScreen):
            return
        screen.show_facts(self._find_row(screen.session))
        width = max(self.size.width - 2, 20)

        def read_lines() -> list[str]:
            return list(iter_screen_lines(self._feed.read_steps(screen.session), width))

        lines = await asyncio.to_thread(read_lines)
        if screen.is_attached:
            screen.show_steps(lines)

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the chosen session."""
        name = event.option_id or ""
        if len(self.screen_stack) > 1:  # a second Enter came before the first was handled
            return
        await self.push_screen(SessionScreen(name, self._feed.titles.get(name, "")))
        await self._show_session()

    def on_option_list_option_highlighted(self) -> None:
        """Draw the chosen row and the one chosen before in their new colors."""
        self.on_resize()

    def on_input_changed(self) -> None:
        """Filter while typing."""
        self.on_resize()

    def on_input_submitted(self) -> None:
        """Keep the filter and go to the sessions."""
        self.query_one("#sessions").focus()

    def action_filter(self) -> None:
        """Open the filter."""
        if len(self.screen_stack) == 1:
            field = self.query_one("#filter", Input)
            field.display = True
            field.focus()

    def action_clear_filter(self) -> None:
        """Close the filter and show all sessions."""
        if len(self.screen_stack) == 1:
            field = self.query_one("#filter", Input)
            field.value, field.display = "", False
            self.query_one("#sessions").focus()

    def action_keys(self) -> None:
        """Show the keys."""
        if not isinstance(self.screen, KeysScreen):
            self.push_screen(KeysScreen())

    def action_collect(self) -> None:
        """Collect at once."""
        self._wake.set()

    def action_pane(self) -> None:
        """Go to the tmux pane of the chosen session."""
        row = self._find_row(self._chosen_session())
        if row is None:
            return
        environ = dict(self._runtime.environ)
        try:
            command, takes_over = pane_command(row.session.tmux, environ.pop("TMUX", ""))
        except FlightlogError as error:
            self.notify(make_inert(error.message), markup=False)
            return
        if not takes_over:
            subprocess.run(command, env=environ, capture_output=True, check=False)
            return
        with self.suspend():
            subprocess.run(command, env=environ, check=False)
