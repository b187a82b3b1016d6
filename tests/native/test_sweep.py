"""Groups and trees end for good, also when nothing more can be started or opened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermix.native.sweep import MOST_TREES, Tree, become_subreaper, elders, enter, kill_group, leave, sweep
from tests.requirements import covers

ROOT = Path(__file__).parents[2]
NOBODY = 65_534


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait(5)


def run_driver(script: str) -> str:
    """Run a program of its own with the package on its path; return what it printed."""
    program = textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_group_is_signalled_as_one(sleeper: subprocess.Popen[bytes]) -> None:
    kill_group(sleeper.pid, signal.SIGTERM)

    assert sleeper.wait(5) == -signal.SIGTERM


def test_a_group_without_members_is_no_error(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait(5)

    kill_group(sleeper.pid, signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_group_of_another_user_is_logged_and_no_error() -> None:
    """A command may start a program that changes its user; its end must not stop at that."""
    printed = run_driver(
        f"""
        import logging, os, signal, subprocess, sys
        from fermix.native.sweep import kill_group
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        read = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
        os.setuid({NOBODY})
        kill_group(read.pid, signal.SIGKILL)
        read.stdin.close()
        print(read.wait())
        """
    )

    assert printed.splitlines()[0].startswith("process group of another user, cannot be signalled: ")
    assert printed.splitlines()[1:] == ["0"]


@pytest.mark.parametrize("pgid", [0, 1, -1])
def test_our_own_group_and_everybody_are_refused(pgid: int) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        kill_group(pgid, signal.SIGTERM)


def test_somebody_elses_child_is_neither_signalled_nor_reaped(sleeper: subprocess.Popen[bytes]) -> None:
    """EXE-06: an orphan is known by its marker, and what was there before is spared."""
    become_subreaper()
    tree = Tree(sleeper.pid, b"FERMIX_CHILD=x", elders())

    assert sweep({tree: signal.SIGKILL}) == [0]
    sleeper.terminate()
    assert os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT) is not None
    assert sweep({tree: signal.SIGKILL}) == [0]

    assert sleeper.wait(5) == -signal.SIGTERM


def test_what_somebody_waits_for_is_no_elder(sleeper: subprocess.Popen[bytes]) -> None:
    """EXE-06: an elder is spared by its number, and that of a leader is free once somebody has waited for it."""
    tree = Tree(sleeper.pid, b"FERMIX_CHILD=x", frozenset())
    before = elders()
    enter(tree)
    meanwhile = elders()
    leave(tree)

    assert [sleeper.pid in seen for seen in (before, meanwhile, elders())] == [True, False, True]


@pytest.mark.parametrize("order", ["SIGKILL SIGTERM", "SIGTERM SIGKILL"])
def test_whoever_is_to_be_killed_is_not_merely_asked_to_end(order: str) -> None:
    """EXE-01: a time-out and a stop of the daemon may fall into the same turn of the loop, in any order."""
    printed = run_driver(
        f"""
        import asyncio, os, select, signal, subprocess
        from fermix.native.sweep import Tree, ask_for_sweep, become_subreaper, children
        become_subreaper()
        script = "setsid sh -c 'trap \\"\\" TERM; echo ready; exec sleep 600 >&-' &"
        env = {{"PATH": os.defpath, "FERMIX_CHILD": "a"}}
        with subprocess.Popen(["sh", "-c", script], env=env, stdout=subprocess.PIPE, start_new_session=True) as shell:
            shell.stdout.readline()
        (orphan,) = children()
        ended = os.pidfd_open(orphan)

        async def main():
            swept = asyncio.get_running_loop().create_future()
            tree = Tree(1 << 21, b"FERMIX_CHILD=a", frozenset(), swept.set_result)
            for name in {order!r}.split():
                ask_for_sweep(tree, getattr(signal, name))
            print(await swept)

        asyncio.run(main())
        print(bool(select.select([ended], [], [], 3)[0]))
        os.kill(orphan, signal.SIGKILL)
        """
    )

    assert printed.split() == ["1", "True"]


def test_the_orphan_of_another_command_is_left_alone() -> None:
    """Also at the moment of its exec, when for a few microseconds it has no variables at all."""
    printed = run_driver(
        """
        import os, signal, subprocess
        from fermix.native.sweep import Tree, become_subreaper, children, enter, sweep
        become_subreaper()
        one, other = (Tree(1 << 21, b"FERMIX_CHILD=" + owner, frozenset()) for owner in (b"a", b"b"))
        enter(other)
        for owner in "ab":
            script = "for x in 1 2 3; do setsid env env env env sleep 600 >/dev/null 2>&1 & done"
            env = {"PATH": os.defpath, "FERMIX_CHILD": owner}
            subprocess.run(["sh", "-c", script], env=env, start_new_session=True)
        while sweep({one: signal.SIGKILL}) != [0]:
            pass
        left = [open(f"/proc/{pid}/stat").read().split()[2] for pid in children()]
        print(len(left), "Z" in left)
        while sweep({other: signal.SIGKILL}) != [0]:
            pass
        print(len(children()))
        """
    )

    assert printed.split() == ["3", "False", "0"]


@pytest.mark.parametrize("variables", ["FERMIX_CHILD=made-up", "FERMIX_CHILD=", "-i"])
def test_an_orphan_that_hides_behind_a_marker_of_its_own_is_swept(variables: str) -> None:
    """EXE-05: only the marker of a command that lives belongs to somebody."""
    printed = run_driver(
        f"""
        import os, signal, subprocess
        from fermix.native.sweep import Tree, become_subreaper, children, sweep
        become_subreaper()
        script = "setsid env {variables} /bin/sleep 600 >/dev/null 2>&1 &"
        env = {{"PATH": os.defpath, "FERMIX_CHILD": "a" * 32}}
        subprocess.run(["sh", "-c", script], env=env, start_new_session=True)
        print(len(children()))
        tree = Tree(1 << 21, b"FERMIX_CHILD=" + b"a" * 32, frozenset())
        while sweep({{tree: signal.SIGKILL}}) != [0]:
            pass
        print(len(children()))
        """
    )

    assert printed.split() == ["1", "0"]


def test_one_walk_tells_every_tree_its_own() -> None:
    """What belongs to nobody who is swept counts for none."""
    printed = run_driver(
        """
        import os, signal, subprocess
        from fermix.native.sweep import Tree, become_subreaper, children, enter, sweep
        become_subreaper()
        trees = []
        for count, owner in enumerate("abc", 1):
            script = f"for x in $(seq {count}); do setsid sleep 600 >/dev/null 2>&1 & done"
            env = {"PATH": os.defpath, "FERMIX_CHILD": owner}
            subprocess.run(["sh", "-c", script], env=env, start_new_session=True)
            trees.append(Tree(1 << 21, f"FERMIX_CHILD={owner}".encode(), frozenset()))
            enter(trees[-1])
        while [open(f"/proc/{pid}/comm").read() for pid in children()].count("sleep\\n") < 6:
            pass
        first, second, third = trees
        print(sweep({first: signal.SIGCONT, third: signal.SIGCONT}))
        while any(sweep({first: signal.SIGKILL, third: signal.SIGKILL})):
            pass
        print(len(children()), sweep({second: signal.SIGKILL}))
        while any(sweep({second: signal.SIGKILL})):
            pass
        print(sorted(children()))
        """
    )

    assert printed.splitlines() == ["[1, 3]", "2 [2]", "[]"]


def test_more_trees_than_one_walk_takes_are_looked_at_again() -> None:
    trees = [Tree(1 << 21, b"FERMIX_CHILD=x", elders()) for _ in range(MOST_TREES + 2)]

    assert sweep(dict.fromkeys(trees, signal.SIGKILL)) == [*[0] * MOST_TREES, 1, 1]


def test_markers_that_cannot_be_told_apart_are_refused() -> None:
    one, other = Tree(1 << 21, b"FERMIX_CHILD=x", elders()), Tree(1 << 21, b"FERMIX_CHILD=xx", elders())
    with pytest.raises(OSError, match="Invalid argument"):
        sweep({one: signal.SIGKILL, other: signal.SIGKILL})


@covers("native.table-full", "native.direct-syscall")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user with a full process table")
def test_a_tree_is_swept_with_the_process_table_full_and_no_descriptor_left() -> None:
    """Architecture, design choices 158: the one moment when a helper process could not be started."""
    printed = run_driver(
        f"""
        import os, resource, signal, subprocess
        from fermix.native.sweep import Tree, become_subreaper, sweep
        os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
        become_subreaper()
        script = "sleep 600 & setsid sh -c 'sleep 600 & sleep 600' & (setsid sleep 600 &) ; echo ready; wait"
        shell = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True, cwd="/")
        shell.stdout.readline()
        def tree(pid):
            lists = [open(f"/proc/{{pid}}/task/{{pid}}/children").read().split()]
            return [int(pid)] + [one for text in lists for child in text for one in tree(child)]
        while sum(open(f"/proc/{{pid}}/cmdline").read().startswith("sleep") for pid in tree(os.getpid())) < 4:
            pass

        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        try:
            os.fork()
        except BlockingIOError:
            print("table full")
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        try:
            while True:
                os.open("/dev/null", os.O_RDONLY)
        except OSError as error:
            print(error.strerror)

        ours = Tree(os.getpid(), b"FERMIX_CHILD=x", frozenset())
        print(sweep({{ours: signal.SIGKILL}}))
        while any(sweep({{ours: signal.SIGKILL}})):
            pass
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            print("all gone")
        """
    )

    assert printed.splitlines() == ["table full", "Too many open files", "[6]", "all gone"]


def test_a_tree_that_grows_meanwhile_is_swept_too() -> None:
    printed = run_driver(
        """
        import os, signal, subprocess
        from fermix.native.sweep import Tree, become_subreaper, children, sweep
        become_subreaper()
        grow = 'for x in $(seq 300); do setsid sh -c "sleep 600" & done; wait'
        subprocess.Popen(["sh", "-c", grow], start_new_session=True)
        while len(open(f"/proc/{min(children())}/task/{min(children())}/children").read().split()) < 20:
            pass
        while any(sweep({Tree(1 << 21, b"FERMIX_CHILD=x", frozenset()): signal.SIGKILL})):
            pass
        print(len(children()))
        """
    )

    assert printed.split() == ["0"]


def test_a_program_of_ours_ends_with_its_parent() -> None:
    """Also when the parent is killed and can do nothing about it."""
    printed = run_driver(
        """
        import os, signal, subprocess, sys
        from fermix.native.sweep import become_subreaper
        become_subreaper()
        inner = "import os, time; from fermix.native.sweep import die_with_parent; " \\
            "die_with_parent(os.getppid()); print(os.getpid(), flush=True); time.sleep(600)"
        outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
        parent = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE)
        child = int(parent.stdout.readline())
        parent.kill()
        print(parent.wait(), os.waitpid(child, 0)[1])
        """
    )

    assert printed.split() == ["-9", "9"]


def test_a_program_whose_parent_is_gone_already_is_told() -> None:
    printed = run_driver(
        """
        from fermix.native.sweep import die_with_parent
        try:
            die_with_parent(1 << 21)
        except ProcessLookupError as error:
            print(error.strerror)
        """
    )

    assert printed == f"parent {1 << 21} has ended\n"


@covers("child.shutdown.kills-group")
def test_the_end_of_a_daemon_ends_its_commands() -> None:
    """A program that is told to stop while a command runs, with a descendant that left its group."""
    printed = run_driver(
        """
        import asyncio, os, signal
        from pathlib import Path
        from fermix.native.child import Limits, run_child
        from fermix.native.sweep import children

        async def main():
            script = "setsid sleep 600 & sleep 600"
            async with asyncio.TaskGroup() as group:
                group.create_task(run_child(["sh", "-c", script], cwd=Path("/"), env={"PATH": os.defpath}))
                while sum("sleep" in text for text in cmdlines()) < 2:
                    await asyncio.sleep(0)
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(600)

        def cmdlines():
            for shell in children():
                for pid in open(f"/proc/{shell}/task/{shell}/children").read().split():
                    yield Path(f"/proc/{pid}/cmdline").read_text()

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print(sorted(children()))
        """
    )

    assert printed == "[]\n"


@covers("native.only-c")
def test_there_is_one_small_piece_of_c_in_the_process() -> None:
    sources = {path.name for path in (ROOT / "fermix").rglob("*.c")}

    confine = {"confine.c", "confine_view.c", "confine_rules.c"}  # a program of its own
    assert sources - confine == {"_native.c"}
    assert len((ROOT / "fermix/native/_native.c").read_text(encoding="utf-8").splitlines()) <= 400
