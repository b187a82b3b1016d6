"""First run: who shall answer? Download the local model, paste a key, or use Ollama.

Opens by itself when nothing can answer yet, later with Ctrl+P. A key is masked, goes to the wizard's functions
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from fermix.errors import FermixError
from fermix.tui.desk import Desk, ProviderChoice
from fermix.tui.visible import prose

LOCAL, OLLAMA = "local", "ollama"
LOOK_AGAIN_S = 0.25
Page = Literal["choose", "provider", "key", "download"]


class SetupScreen(ModalScreen[str | None]):
    """Closes with None; what was chosen is with the daemon by then."""

    CSS_PATH = "setup.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back", priority=True)]

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self._page: Page = "choose"
        self._choice: ProviderChoice | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="setup", can_focus=False) as box:
            box.border_title = "Who shall answer?"
            box.border_subtitle = "Enter choose · Esc back"
            yield OptionList(*self._ways(), id="choose", markup=False)
            yield OptionList(id="provider", markup=False)
            with Vertical(id="key"):
                yield Static("", id="whose", markup=False)
                yield Input(password=True, placeholder="Paste the key, then Enter", id="secret")
                yield Input(placeholder="Address of the server", id="address")
            with Vertical(id="download"):
                yield Static("", id="what", markup=False)
                yield ProgressBar(id="progress", show_eta=False)
            yield Static("", id="hint", markup=False)

    def on_mount(self) -> None:
        self.set_interval(LOOK_AGAIN_S, self._look)
        self._turn_to("download" if self._desk.local_model.fetching else "choose")

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        chosen = event.option.id or ""
        if chosen == LOCAL:
            self.run_worker(self._use_local(), exclusive=True)
        elif chosen == "key":
            await self._list_providers()
        elif choice := next((each for each in await self._choices() if each.id == chosen), None):
            self._ask_key(choice)

    def on_input_submitted(self) -> None:
        self.run_worker(self._save(), exclusive=True)

    def action_back(self) -> None:
        if self._page in ("choose", "download"):
            self.dismiss(None)
        else:
            self._turn_to("choose")

    async def _use_local(self) -> None:
        """Make the local model the one that answers, and bring it here."""
        try:
            if self._desk.setup is not None:
                await self._desk.save_provider(LOCAL, key="", base_url="")
        except FermixError as error:
            self._hint(error.user_text or str(error), error=True)
            return
        if self._desk.local_model.here:
            self.dismiss(None)
            return
        self._turn_to("download")
        await self._desk.fetch_model()

    async def _save(self) -> None:
        choice, secret = self._choice, self.query_one("#secret", Input)
        if choice is None or (choice.key == "required" and not secret.value.strip()):
            self._hint("Paste the key first; the provider's website shows it under its account settings.")
            return
        self._hint(f"Asking {choice.label} whether it works…")
        try:
            await self._desk.save_provider(
                choice.id, key=secret.value.strip(), base_url=self.query_one("#address", Input).value.strip()
            )
        except FermixError as error:
            self._hint(error.user_text or str(error), error=True)
            return
        self.dismiss(None)

    def _ask_key(self, choice: ProviderChoice) -> None:
        self._choice = choice
        secret, address = self.query_one("#secret", Input), self.query_one("#address", Input)
        secret.value, address.value = "", choice.base_url
        secret.display = choice.key != "none"
        self.query_one("#whose", Static).update(Content(choice.label))
        self._turn_to("key")

    def _turn_to(self, page: Page) -> None:
        self._page = page
        for name in ("choose", "provider", "key", "download"):
            self.query_one(f"#{name}").display = name == page
        keyless = page == "key" and self._choice is not None and self._choice.key == "none"
        self._hint(KEYLESS if keyless else FIRST_WORDS[page])
        self._look()
        if page == "key":
            secret = self.query_one("#secret", Input)
            (secret if secret.display else self.query_one("#address", Input)).focus()
        elif page != "download":
            self.query_one(f"#{page}", OptionList).focus()

    def _look(self) -> None:
        """Show how far the download is."""
        if self._page != "download":
            return
        local = self._desk.local_model
        self.query_one(ProgressBar).update(total=local.total_bytes or None, progress=local.done_bytes)
        sizes = f"{_size(local.done_bytes)} of {_size(local.total_bytes)}"
        self.query_one("#what", Static).update(Content(f"{prose(local.name)}: {sizes}"))
        if local.error:
            why = prose(local.error).rstrip(".")
            self._hint(f"{why}. Esc leaves; choose it again to go on where it stopped.", error=True)
        elif local.here:
            self.dismiss(None)

    def _hint(self, sentence: str, *, error: bool = False) -> None:
        hint = self.query_one("#hint", Static)
        hint.set_class(error, "-error")
        hint.update(Content(sentence))

    def _ways(self) -> list[Option]:
        local, able = self._desk.local_model, self._desk.setup is not None
        comes = "already here," if local.here else f"downloads {_size(local.total_bytes)} once, then"
        return [
            _way(LOCAL, "The local model", f"{comes} needs no key and no network", True),
            _way("key", "An API key", "OpenAI, Anthropic and others; the key stays on this machine", able),
            _way(OLLAMA, "Ollama", "models you already run on this machine", able),
        ]

    async def _list_providers(self) -> None:
        options = self.query_one("#provider", OptionList).clear_options()
        options.add_options([Option(each.label, each.id) for each in await self._choices() if each.id != OLLAMA])
        options.highlighted = 0 if options.option_count else None
        self._turn_to("provider")

    async def _choices(self) -> Sequence[ProviderChoice]:
        """What may be set up; nothing, with the reason on the screen, when that cannot be read."""
        if self._desk.setup is None:
            return ()
        self._hint("Reading the configuration…")
        try:
            return await self._desk.setup.choices()
        except FermixError as error:
            self._hint(error.user_text or str(error), error=True)
            return ()


FIRST_WORDS: dict[Page, str] = {
    "choose": "Esc: decide later. Everything here can be changed with Ctrl+P or `fermix setup`.",
    "provider": "Whose key is it?",
    "key": "The key is tried once, then stored where only you can read it.",
    "download": "Esc hides this; the download goes on and the status line shows it.",
}


KEYLESS = "The server is asked which models it has, then its address is stored. Enter goes on."


def _way(name: str, title: str, about: str, able: bool) -> Option:
    return Option(Content.assemble((title, "bold"), (f"\n{about}", "$text-muted")), name, disabled=not able)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1_000_000:,.0f} MB"
