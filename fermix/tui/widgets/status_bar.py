"""The last line: connection, model, what does not work, tokens of the last turn, downloads, home."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from fermix.tui.visible import prose


@dataclass(frozen=True, slots=True)
class Facts:
    """What the line says. `progress` is 0 to 1 while a model is fetched, else None; `trouble` is why we wait.
    `degraded` names what does not work, and `degraded_why` gives the reason.
    """

    home: str
    connected: bool = False
    trouble: str = ""
    model: str | None = None
    session: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    progress: float | None = None
    degraded: str = ""
    degraded_why: str = ""


class StatusBar(Widget):
    """Shows `facts`; what does not fit is left out from the right."""

    facts: reactive[Facts] = reactive(Facts(home=""))

    def __init__(self, home: str) -> None:
        super().__init__(id="status")
        self.set_reactive(StatusBar.facts, Facts(home))

    def render(self) -> Content:
        line, *parts = self._parts()
        for part in parts:
            longer = line + Content.styled(" · ", "$text-disabled") + part
            if longer.cell_length > self.size.width:
                break
            line = longer
        return self._with_home(line)

    def _parts(self) -> list[Content]:
        """What there is to say, the most important first."""
        facts = self.facts
        parts: list[str] = []
        if facts.progress is not None:
            parts.append(f"fetching the local model {facts.progress:.0%}")
        if facts.input_tokens or facts.output_tokens:
            parts.append(f"{_short(facts.input_tokens)} in, {_short(facts.output_tokens)} out")
        if facts.session:
            parts.append(facts.session)
        connection = self._connection()
        return [connection, *self._degraded(connection), *map(Content, parts)]

    def _degraded(self, connection: Content) -> list[Content]:
        """What does not work, with the reason where there is room for it."""
        facts = self.facts
        if not facts.connected or not facts.degraded:
            return []
        mark = Content.styled("▲ ", "$warning")
        whole = mark + Content(f"{facts.degraded}: {facts.degraded_why}")
        room = self.size.width - connection.cell_length - len(" · ")
        return [whole if whole.cell_length <= room else mark + Content(facts.degraded)]

    def _connection(self) -> Content:
        """Whether a daemon answers, and with which model: where room is short the model says both."""
        facts = self.facts
        if not facts.connected:
            return Content.assemble(("○ ", "$warning"), facts.trouble or "connecting…")
        mark = Content.styled("● ", "$success")
        model = prose(facts.model) if facts.model else "no model"
        whole = mark + Content("connected") + Content.styled(" · ", "$text-disabled") + Content(model)
        return whole if whole.cell_length <= self.size.width else mark + Content(model)

    def _with_home(self, line: Content) -> Content:
        gap = self.size.width - line.cell_length - cell_len(self.facts.home)
        if gap < 2:
            return line
        return line + Content(" " * gap) + Content.styled(self.facts.home, "$text-disabled")


def _short(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:.1f}k"
