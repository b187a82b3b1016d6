"""What a tool may open and where a command may run, by the turn it runs in. Calls block shortly: use Workers.

Tools reach files through here and never by a name of their own. A path is resolved, then decided on, then opened
without following any link, then looked at again through its descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.sandbox.environment import Variables, Wanted
from fermix.agent.sandbox.place import Place
from fermix.agent.sandbox.roots import Root, Roots, real
from fermix.agent.sandbox.settings import SandboxSettings
from fermix.agent.sandbox.walls import Confinement, told
from fermix.agent.turn import Turn
from fermix.errors import OutsideSandbox, Refused
from fermix.home import Home
from fermix.native.confine import Behind, Kernel
from fermix.native.program import own_places
from fermix.trust import Trust

LOCAL_CHANNELS = frozenset({"cli", "daemon"})  # the names our own socket gives; no remote channel has an origin
HOW_TO_OPEN = "the owner opens another one with `fermix grant path FOLDER`, in a chat with `/grant path FOLDER`"
STRICT = (
    "Mode strict runs no command where a part of its walls is missing, and here {}. Mend that, or accept it with "
    "`fermix sandbox mode standard`."
)


@dataclass(frozen=True, slots=True)
class Confined:
    """How a command runs: its walls, None where this system holds none, and its variables."""

    behind: Behind | None
    environment: Mapping[str, str]


class Sandbox:
    """The policy of one daemon. Knows nothing of any tool."""

    def __init__(
        self,
        settings: SandboxSettings,
        home: Home,
        launch_dir: Path,
        user_home: Path,
        environ: Mapping[str, str],
        *,
        key_names: Collection[str] = (),
    ) -> None:
        """`key_names` are the variables that may hold keys of ours.

        Raises: ConfigError when a grant is one that must never be given.
        """
        self._home = home
        self._launch_dir = launch_dir
        self._user_home = user_home
        self._settings = settings
        self._roots = self.roots_under(settings)
        self._workspace = home.workspace
        self.search_path = environ.get("PATH", "")
        self.variables = Variables(environ, key_names)
        self._confinement = Confinement(user_home, home.run / "commands", environ)
        self.own_environment = self.variables.own()

    @property
    def settings(self) -> SandboxSettings:
        """What is in use."""
        return self._settings

    def roots_under(self, settings: SandboxSettings) -> Roots:
        """Work out what a policy would open; changes nothing. Raises: ConfigError as on starting."""
        return Roots(settings, self._home, self._launch_dir, self._user_home)

    def use(self, settings: SandboxSettings) -> None:
        """Take a new policy; the next path is judged by it. Raises: ConfigError, and the old one stays."""
        self._roots, self._settings = self.roots_under(settings), settings

    def standing(self) -> tuple[Root, ...]:
        """Return what is open to every turn, guests included."""
        return self._roots.standing()

    def roots_for(self, turn: Turn) -> tuple[Root, ...]:
        """Return what is open to this turn, the workspace first."""
        cwd = _request_cwd(turn)
        return self._roots.standing() if cwd is None else self._roots.with_request(cwd)

    def working_dir(self, turn: Turn) -> Path:
        """Return where relative paths and commands start: the operator's own folder if open, else the workspace."""
        folder = _request_folder(turn)
        return self._workspace if folder is None or self.why_elsewhere(turn) is not None else folder

    def why_elsewhere(self, turn: Turn) -> OutsideSandbox | None:
        """Return why a command does not start in the folder an operator speaks from; None when it does, or has none."""
        folder = _request_folder(turn)
        if folder is None:
            return None
        try:
            self._roots.admit(folder, self.roots_for(turn))
        except OutsideSandbox as refusal:
            if self._roots.why_closed(folder) is not None:
                return refusal
            return OutsideSandbox(refusal.path, f"{refusal.reason}; {self._roots.how_to_open(folder)}")
        return None

    def confined(self, turn: Turn, *, offline: bool = False) -> Confined:
        """Return what a command of this turn runs with and behind; `offline` closes the network to it in any case.

        Raises: Refused when nothing here can hold it and it must not run without.
        """
        network = self._settings.network and turn.trust is Trust.OPERATOR and not offline
        roots = (root.path for root in self.roots_for(turn))
        open_folders = [path for path in roots if self._roots.why_closed(path) is None]
        behind = self._confinement.behind(
            turn.id, open_folders, self._roots.hidden(), network=network, look_at=(real(self._home.skills),)
        )
        kernel = self._confinement.kernel()
        if behind is None and (self._settings.mode == "strict" or not network):
            problem = kernel.problem or "this system cannot close the network to a command"
            raise Refused("the command cannot be confined", user_text=f"Commands cannot be confined here: {problem}")
        if kernel.missing and self._settings.mode == "strict":
            raise Refused("a part of the walls is missing", user_text=STRICT.format("; ".join(kernel.missing)))
        base = self.variables.base(self._settings.env)
        return Confined(behind, {**base, **({} if behind is None else behind.variables())})

    def confined_reader(self, turn: Turn) -> Confined:
        """Return what our own program runs with and behind where it reads the bytes of others: no folder of the
        owner's is there and no network. Where nothing can be held it runs all the same, bound in memory and time.
        """
        places = tuple(real(path) for path in own_places())
        behind = self._confinement.behind(turn.id, (), self._roots.hidden(), network=False, look_at=places)
        return Confined(behind, {**self.own_environment, **({} if behind is None else behind.variables())})

    def wanted(self, turn: Turn, names: Collection[str] | None = None) -> Wanted:
        """Work out which variables a command of this turn gets besides: all that the owner allows, or these alone.

        Only an operator's gets any. A helper is not asked once a command could have put another in its place.
        """
        env = self._settings.env
        if turn.trust is not Trust.OPERATOR:
            return Wanted()
        folders = [root.path for root in self.roots_for(turn)]
        return self.variables.wanted(self.variables.names(env) if names is None else names, env, folders)

    def wanted_anywhere(self, names: Collection[str]) -> Wanted:
        """Do the same outside of any turn, for the owner."""
        return self.variables.wanted(names, self._settings.env, [root.path for root in self.standing()])

    def prepare(self) -> None:
        """Find out what holds commands here and remove what those of a killed daemon left. Blocking."""
        self._confinement.kernel()

    def forget(self, turn: Turn) -> Callable[[], None] | None:
        """Return what removes the temporary folder of a turn that has ended, None when it had none."""
        return self._confinement.forget(turn.id)

    def walls(self) -> str:
        """Say in words what this system holds of a command's walls. Blocking."""
        return told(self.kernel())

    def kernel(self) -> Kernel:
        """Say the same as facts. Blocking."""
        return self._confinement.kernel()

    def find(self, turn: Turn, path: str) -> Place:
        """Return the place that a text means in this turn.

        Raises: OutsideSandbox when it is not open to it; a relative path never means the workspace to somebody who
        speaks from another folder, which would then seem to be empty.
        """
        named = self._roots.expand(path)
        if not named.is_absolute() and (refusal := self.why_elsewhere(turn)) is not None:
            raise refusal
        found = real(self.working_dir(turn) / named)
        return Place(self._root_of(found, turn).path, found, self._roots.closed())

    def _root_of(self, found: Path, turn: Turn) -> Root:
        try:
            return self._roots.admit(found, self.roots_for(turn))
        except OutsideSandbox as refusal:
            if turn.trust is not Trust.OPERATOR or self._roots.why_closed(found) is not None:
                raise
            raise OutsideSandbox(refusal.path, f"{refusal.reason}; {HOW_TO_OPEN}") from refusal

    def find_to_change(self, turn: Turn, path: str) -> Place:
        """Return the place that a text means, to write there.

        Raises: OutsideSandbox, also for what may only be looked at.
        """
        place = self.find(turn, path)
        if (reason := self._roots.why_fixed(place.path)) is not None:
            raise OutsideSandbox(str(place.path), reason)
        return place


def _request_cwd(turn: Turn) -> Path | None:
    """The folder an operator speaks from on this machine; None for everybody else."""
    message = turn.message
    if turn.trust is not Trust.OPERATOR or message.channel not in LOCAL_CHANNELS or message.origin is None:
        return None
    return message.origin.cwd


def _request_folder(turn: Turn) -> Path | None:
    """The same, real; None also when it is no folder any more."""
    cwd = _request_cwd(turn)
    return None if cwd is None or not (folder := real(cwd)).is_dir() else folder
