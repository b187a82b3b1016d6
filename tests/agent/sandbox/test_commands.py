"""The seat belt holds for what it names, and is in nobody's way."""

from __future__ import annotations

import pytest

from fermix.agent.sandbox.commands import why_refused


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm -rf /*",
        "sudo rm -r -f ~",
        "cd / && rm -fr $HOME",
        'rm -rf "${HOME}"/',
        "rm --recursive --force /etc",
        "rm -rf notes /usr",
        "/bin/rm -Rf ~/",
        "mkfs.ext4 /dev/sda1",
        "dd if=/dev/zero of=/dev/sda bs=1M",
        ":(){ :|:& };:",
        "bomb() { bomb | bomb & }; bomb",
        "kill -9 -1",
        "kill -1",
        "pkill -9 -u root",
        "shutdown -h now",
        "sleep 1; reboot",
        "sudo poweroff",
        "init 0",
        "systemctl --force reboot",
        "echo secret | sudo -S ls",
        "if true; then reboot; fi",
        "sudo -u root rm -rf /",
        "LANG=C rm -rf ~",
        "rm -rf ~/.ssh",
        'rm -rf "$HOME/.gnupg"',
        'rm -rf "$HOME"/.aws/',
        "rm -r /home/ann",
        "rm -rf /home/ann/.kube/*",
        "rm -rf /proc /sys",
        'dd if=x of="/dev/sda"',
        "kill -s KILL -1",
        "kill -n 9 -- -1",
        "pkill -uann",
        "pkill -U 1000",
        "pkill --uid 1000",
        "echo `reboot`",
    ],
)
def test_what_ruins_a_machine_is_refused(command: str) -> None:
    assert why_refused(command)


@pytest.mark.parametrize(
    "command",
    [
        "curl wttr.in/Paris",
        "rm -rf build/ ./dist /tmp/work",
        "rm -rf ~/projects/old",
        "rm notes.txt",
        "grep -r shutdown /var/log",
        "echo reboot",
        "man kill",
        "kill -1 4711",
        "kill -9 $pid",
        "dd if=disk.img of=/dev/null",
        "git init 0",
        "cat <<E > reboot.md\nhow to shutdown\nE",
        "sudo -n ls",
        "f() { g | h & }; f",
        "rm -rf work/.ssh",
        "rm -rf ~/.cache/thumbs ~/.ssh-old",
        "rm -rf /home/ann/build",
        "kill -s TERM 1",
        "pkill -f my-user",
        "pkill some-unit",
    ],
)
def test_what_only_looks_alike_is_not(command: str) -> None:
    """EXE-14: `/Paris` in an address is no absolute path."""
    assert why_refused(command) is None


@pytest.mark.parametrize(
    "piece",
    [
        "x",
        ";",
        "(dd ",
        "rm -r (",
        "-r",
        "rm -rrrr",
        "sudo ",
        "sudo -a ",
        " ",
        "a() {",
        "!pkill ",
        "/",
        "then ",
        "a=b ",
        "sudo -u r ",
        "rm -r ~/.",
        "kill -s ",
        "\n",
        "\n ",
    ],
)
def test_a_command_made_to_take_long_does_not(piece: str) -> None:
    """A quadratic pattern would stop the daemon for minutes, also from another thread: nothing else runs meanwhile."""
    assert why_refused("echo " + piece * (100_000 // len(piece))) is None
