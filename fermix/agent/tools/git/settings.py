"""What git may learn from a repository's own settings, and what we set instead. The repository may be anybody's.

Many settings name a program that git then runs. Those with a fixed name are overridden on the command line. The rest
(drivers of filters, includes, helpers by address) is open-ended and grows with git, so only settings that are known to
be harmless may stand in a repository that is worked in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NOBODY = "/bin/false"
"""What stands for every program that git would run."""

OVERRIDES = (
    "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", f"core.editor={NOBODY}",
    f"core.askPass={NOBODY}", "core.quotePath=false", "core.attributesFile=/dev/null", "credential.helper=",
    "submodule.recurse=false", "diff.ignoreSubmodules=dirty", "fetch.recurseSubmodules=false", "gc.auto=0",
    "maintenance.auto=false", "commit.gpgSign=false", "tag.gpgSign=false", "log.showSignature=false",
    "merge.verifySignatures=false", "rebase.autoStash=false", "merge.autoStash=false", f"gpg.program={NOBODY}",
    f"gpg.openpgp.program={NOBODY}", f"gpg.x509.program={NOBODY}", f"gpg.ssh.program={NOBODY}",
    "gpg.ssh.defaultKeyCommand=", f"sequence.editor={NOBODY}", "protocol.ext.allow=never",
    "protocol.file.allow=never", "protocol.fd.allow=never", "user.useConfigOnly=true", "color.ui=false",
    "advice.detachedHead=false",
)  # fmt: skip
PREFIX = ("--no-pager", *(part for setting in OVERRIDES for part in ("-c", setting)))

_CORE = """
    abbrev autocrlf bare bigfilethreshold checkroundtripencoding checkstat commentchar commitgraph compression
    createobject deltabasecachelimit eol filemode fscache fsync fsyncmethod fsyncobjectfiles hidedotfiles ignorecase
    logallrefupdates longpaths loosecompression multipackindex notesref packedgitlimit packedgitwindowsize
    precomposeunicode preloadindex protecthfs protectntfs quotepath repositoryformatversion safecrlf sharedrepository
    sparsecheckout sparsecheckoutcone splitindex symlinks trustctime untrackedcache usebuiltinfsmonitor whitespace
"""
_OVERRIDDEN_CORE = "askpass editor fsmonitor hookspath pager sshcommand worktree"  # the last ones by the environment
_REMOTE = """
    fetch followremotehead gh-resolved mirror partialclonefilter promisor prune prunetags push pushurl skipdefaultupdate
    skipfetchall tagopt url
"""
_DIFF = """
    algorithm colormoved colormovedws context dirstat ignoresubmodules indentheuristic interhunkcontext mnemonicprefix
    noprefix renamelimit renames statgraphwidth submodule suppressblankempty wordregex
"""

PLAIN: Mapping[str, frozenset[str]] = {
    section: frozenset(names.split())
    for section, names in {
        "checkout": "defaultremote guess workers",
        "commit": "cleanup gpgsign status verbose",
        "core": f"{_CORE} {_OVERRIDDEN_CORE}",
        "credential": "helper username usehttppath",
        "diff": _DIFF,
        "extensions": "compatobjectformat noop objectformat partialclone preciousobjects refstorage worktreeconfig",
        "fetch": "fsckobjects negotiationalgorithm output parallel prune prunetags showforcedupdates writecommitgraph",
        "format": "pretty signoff",
        "gc": "auto autodetach autopacklimit packrefs pruneexpire reflogexpire reflogexpireunreachable",
        "gpg": "format program",
        "http": "lowspeedlimit lowspeedtime maxrequests postbuffer version",
        "i18n": "commitencoding logoutputencoding",
        "init": "defaultbranch",
        "merge": "conflictstyle ff log renamelimit renames stat",
        "protocol": "version",
        "pull": "ff rebase",
        "rebase": "autosquash autostash stat updaterefs",
        "remote": "pushdefault",
        "submodule": "active fetchjobs recurse",
        "tag": "forcesignannotated gpgsign sort",
        "transfer": "fsckobjects hiderefs",
        "user": "email name signingkey useconfigonly",
        "author": "email name",
        "committer": "email name",
    }.items()
}
"""Settings without a name in the middle, by section."""

NAMED: Mapping[str, frozenset[str]] = {
    section: frozenset(names.split())
    for section, names in {
        "credential": "helper provider usehttppath username",
        "diff": "algorithm binary cachetextconv wordregex xfuncname",
        "gpg": "program",
        "remote": _REMOTE,
        "submodule": "active branch fetchrecursesubmodules ignore url",
    }.items()
}
"""Settings with a name in the middle, such as that of a remote."""

WHOLE = frozenset({
    "advice", "blame", "color", "column", "feature", "index", "log", "maintenance", "pack", "pager", "pretty", "push",
    "rerere", "status",
})  # fmt: skip
"""Sections of git without any program, or with programs that never run without a terminal or are overridden."""

OF_OTHERS = frozenset({
    "git-town", "gitflow", "gitg", "github", "gitk", "gui", "hub", "jj", "lfs", "oh-my-zsh", "svn-remote", "tig",
    "vscode",
})  # fmt: skip
"""Sections of other programs, which git itself does not read."""


def risky(keys: Iterable[str]) -> list[str]:
    """Return the settings, named as git names them, that are not known to be harmless, e.g. "filter.lfs.clean"."""
    return sorted({key for key in keys if not _is_harmless(key)})


def _is_harmless(key: str) -> bool:
    section, _, rest = key.partition(".")
    name, _, last = rest.rpartition(".")
    if section in WHOLE or section in OF_OTHERS:
        return True
    if section == "branch":
        return last != "mergeoptions"  # editors keep notes of their own here
    known = NAMED if name else PLAIN
    return last in known.get(section, frozenset())
