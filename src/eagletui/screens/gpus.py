"""Screen 2: every card, its recent history, and the processes on the cards and on the host."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.geometry import Size

from eagletui.records import GpuSample
from eagletui.screens.base import Page, set_height
from eagletui.screens.card import CardChart, card_lines, strip_of
from eagletui.screens.words import board_problem, card_state, gpu_summary_parts, link_word, memory, pair, temperature
from eagletui.text import MISSING, clean, duration, number, rate, short_card, short_command, size
from eagletui.widgets.bars import gauge, time_step
from eagletui.widgets.dialog import Reader
from eagletui.widgets.paint import Line, joined
from eagletui.widgets.panel import Panel
from eagletui.widgets.table import Column, Row, Table

GPU_TOPICS = frozenset({"gpus"})
HISTORY = 120.0
"""Seconds that the strips reach back, at least."""


class Summary(Panel):
    """One line over all cards, and the driver; a second one when something is wrong with the driver."""

    topics = frozenset({"gpus", "host", "connection"})
    fades = True

    def lines(self, width: int) -> list[Line]:
        board = self.store.gpus
        parts = gpu_summary_parts(self.store)
        if parts and board is not None:
            names = {short_card(card.name) for card in board.cards if card.name}
            if names:
                parts.append([(names.pop() if len(names) == 1 else f"{len(names)} models", "dim")])
            if board.driver:
                cuda = f", CUDA {clean(board.cuda, 12)}" if board.cuda else ""
                parts.append([(f"driver {clean(board.driver, 20)}{cuda}", "dim")])
        problem = board_problem(self.store)
        out: list[Line] = [[(" ", ""), *joined(parts, width - 1)]] if parts else []
        if problem is not None:
            out.append([(" ", ""), *joined([problem], width - 1)])
        return out


class Cards(Table):
    """A row for each card; what is less important gives way on a narrow screen."""

    topics = GPU_TOPICS
    fades = True
    name_of_rows = "card"

    def columns(self) -> Sequence[Column]:
        wide = self.size.width >= 120
        models = len({card.name for card in self.store.gpus.cards}) > 1 if self.store.gpus else False  # else the summary has it
        return (
            Column("GPU", 3, ">"),
            Column("name", 18 if models else 0, priority=3),
            Column("util %", 16 if wide else 12, ">"),
            Column("mem GiB", 9 if wide else 7, ">"),
            Column("memory", 12, priority=10),
            Column("W/cap", 7, ">", 1),
            Column("temp", 9, ">", 1),
            Column("SM MHz", 6, ">", 4),
            Column("mem MHz", 7, ">", 8),
            Column("P", 2, ">", 5),
            Column("PCIe", 6, "<", 5),
            Column("from host", 9, ">", 6),
            Column("to host", 9, ">", 6),
            Column("state", 12, "<", 2, grow=True),
        )

    def faded(self) -> bool:
        board = self.store.gpus
        return super().faded() or (board is not None and board.stale_since is not None)

    def rows(self) -> Sequence[Row]:
        board = self.store.gpus
        if board is None:
            return []
        width = 12 if self.size.width >= 120 else 8
        return [self._row(card, width) for card in board.cards]

    def _row(self, card: GpuSample, bar: int) -> Row:
        head = str(card.number)
        state = card_state(card, self.store)
        name = short_card(card.name)
        if card.lost is not None:
            blank: Line = [(MISSING, "dim")]
            return Row(card.uuid, (head, name, *([blank] * 11), state), (card.number, name))
        share = None if card.mem_used is None or not card.mem_total else 100 * card.mem_used / card.mem_total
        cells = (
            head,
            name,
            [*gauge(card.util, bar), (f"{number(card.util):>4}", "")],
            memory(card, 9 if bar == 12 else 7),
            gauge(share, 12, "fill2"),
            pair(card.power, card.power_cap, 7),
            temperature(card.temp, card.margin),
            number(card.clock_sm).replace(",", ""),
            number(card.clock_mem).replace(",", ""),
            MISSING if card.pstate is None else f"P{card.pstate}",
            [link_word(card, self.store.gpu_summary)],
            rate(card.pcie_rx),
            rate(card.pcie_tx),
            state,
        )
        sort = (
            card.number, name, card.util, card.mem_used, share, card.power, card.temp, card.clock_sm, card.clock_mem, card.pstate,
            card.pcie_gen, card.pcie_rx, card.pcie_tx, "".join(text for text, _ in state),
        )  # fmt: skip
        return Row(card.uuid, cells, sort)

    def empty(self) -> list[Line]:
        return []


class History(Panel):
    """Three strips per card side by side, all cards on one scale: utilisation, power, memory controller."""

    topics = GPU_TOPICS
    fades = True

    def lines(self, width: int) -> list[Line]:
        board = self.store.gpus
        if board is None or not board.cards:
            return []
        top = max((card.power_cap or card.power_max or 0.0 for card in board.cards), default=0.0)
        strips = [
            ("util", "util, 0-100 %", 100.0),
            ("power", f"power, 0-{number(top)} W", top),
            ("mem_util", "memory busy, 0-100 %", 100.0),
        ]
        strips = [strip for strip in strips if strip[2] > 0][: 3 if width >= 130 else 2]
        room = (width - 5) // len(strips) - 2
        step = time_step(room, HISTORY)
        head: Line = [("     ", "")]
        for _, title, _ in strips:
            label = f"{title}, last {duration(room * step)}"
            head.append((f"{label[:room]:<{room}}  ", "head"))
        out = [head]
        for card in board.cards:
            line: Line = [(f" {card.number:>3} ", "dim")]
            for (name, _, high), style in zip(strips, ("fill", "fill2", "dim"), strict=False):
                line.append((strip_of(self.store, ("gpu", card.uuid, name), room, step, high), style))
                line.append(("  ", ""))
            out.append(line)
        return out


class ProcessTable(Table):
    """A list of processes; the second value that a row is sorted by is its pid."""

    fades = True
    name_of_rows = "process"

    @property
    def pid_at_cursor(self) -> int | None:
        row = self.current
        return int(row.sort[1]) if row is not None and isinstance(row.sort[1], int) else None


class CardProcesses(ProcessTable):
    """The processes that hold memory on the cards, with their owner and job."""

    topics = frozenset({"gpus", "jobs"})

    def columns(self) -> Sequence[Column]:
        return (
            Column("GPU", 3, ">"),
            Column("pid", 8, ">"),
            Column("user", 10, "<", 3),
            Column("memory", 8, ">"),
            Column("job", 16, "<", 2),
            Column("command on the cards", 24, "<", 0, grow=True),
        )

    def rows(self) -> Sequence[Row]:
        board = self.store.gpus
        out: list[Row] = []
        for card in board.cards if board is not None else ():
            for process in card.processes or ():
                job = self.store.jobs.get(process.job) if process.job else None
                name = clean(job.name if job is not None else process.job or "", 60)
                user = clean(process.user, 40) if process.user is not None else MISSING
                command = short_command(process.command, "not visible from here (another container or user)")
                cells = (str(card.number), str(process.pid), user, size(process.mem), name or MISSING, command)
                sort = (card.number, process.pid, user, process.mem, name, command)
                out.append(Row(f"{card.uuid}:{process.pid}", cells, sort))
        return out

    def empty(self) -> list[Line]:
        board = self.store.gpus
        if board is None or not board.present:
            return []
        unknown = board.cards and all(card.processes is None for card in board.cards)
        return [[(" the driver does not tell the processes" if unknown else " no process holds memory on a card", "dim")]]


class HostProcesses(ProcessTable):
    """The top of the host's processes."""

    topics = frozenset({"processes"})

    def columns(self) -> Sequence[Column]:
        return (
            Column("cpu %", 6, ">"),
            Column("pid", 8, ">"),
            Column("user", 10, "<", 2),
            Column("memory", 8, ">"),
            Column("age", 9, ">", 3),
            Column("S", 1, "<", 4),
            Column("command on the host", 24, "<", 0, grow=True),
        )

    def rows(self) -> Sequence[Row]:
        out: list[Row] = []
        for process in self.store.processes:
            user, state = clean(process.user, 40) or MISSING, clean(process.state, 2)
            command = short_command(process.command or None, f"[{process.comm}]")
            stuck: Line = [(state, "warn" if state == "D" else "dim")]
            cells = (
                number(process.cpu, 1), str(process.pid), user, size(process.rss), duration(process.age), stuck, command,
            )  # fmt: skip
            sort = (process.cpu, process.pid, user, process.rss, process.age, state, command)
            out.append(Row(f"{process.pid}:{process.start}", cells, sort))
        return out

    def empty(self) -> list[Line]:
        return [[(" no process table yet", "dim")]]


class Gpus(Page):
    """Cards above, their history where there is room, processes below."""

    @property
    def looks(self) -> tuple[str, ...]:
        return ("processes", "traffic")

    def compose(self) -> ComposeResult:
        yield Summary()
        yield Cards(id="cards")
        yield History(id="history")
        yield CardProcesses(id="card-processes")
        yield HostProcesses(id="host-processes")

    def share_out(self, size: Size) -> None:
        board = self.store.gpus
        count = len(board.cards) if board is not None else 0
        room = size.height - 1 - (1 if board_problem(self.store) is not None else 0)
        held = sum(len(card.processes or ()) for card in board.cards) if board is not None else 0
        cards = min(count + 1, max(4, room // 2)) if count else 0
        room -= cards
        history = count + 1 if count and room - count - 1 >= 12 else 0
        room -= history
        on_cards = min(held + 1, max(3, room // 2 if room >= 12 else room)) if count else 0
        if count and held == 0:
            on_cards = min(2, room)
        on_host = room - on_cards if room - on_cards >= 3 else 0
        if not on_host:
            on_cards = room if count else 0
        set_height(self.query_one("#cards", Panel), cards)
        set_height(self.query_one("#history", Panel), history)
        set_height(self.query_one("#card-processes", Panel), max(0, on_cards))
        set_height(self.query_one("#host-processes", Panel), max(0, on_host))

    def opened(self, table: Table, key: str) -> None:
        if isinstance(table, Cards):
            title = next((f"GPU {c.number}  {short_card(c.name)}" for c in self._cards() if c.uuid == key), "GPU")
            chart = CardChart(self.store, key)
            self.app.push_screen(Reader(title, lambda width: card_lines(self.store, key, width), GPU_TOPICS, chart))
        else:
            row = table.current
            if row is not None:
                self.app.push_screen(Reader("process", lambda width: process_lines(table, row, width)))

    def _cards(self) -> Sequence[GpuSample]:
        return self.store.gpus.cards if self.store.gpus is not None else ()


def process_lines(table: Table, row: Row, width: int) -> list[Line]:
    """A process in full: each column on its line, the command line folded over as many as it needs."""
    out: list[Line] = []
    for column, cell in zip(table.columns(), row.cells, strict=True):
        text = cell if isinstance(cell, str) else "".join(part for part, _ in cell)
        step = max(10, width - 12)
        pieces = [text[at : at + step] for at in range(0, len(text), step)] or [""]
        out.append([(f"{column.title.split(' on ')[0]:<10}  ", "dim"), (pieces[0], "")])
        out += [[(" " * 12, ""), (piece, "")] for piece in pieces[1:]]
    return out
