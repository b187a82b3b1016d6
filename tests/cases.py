"""The faults and rules of others that the gateway is held against, each in a few words of our own.

A test shows one by naming its id in its docstring ("DLV-09: ..."), or a row of the attacks in
tests/proof/fooled does. What stands in OPEN has no system yet; the reason
says which. `tests/house/test_cases.py` fails when a case outside OPEN has no test, when one inside OPEN has one, and
when a test names a case that nobody knows.
"""

from __future__ import annotations

CASES = {
    # Delivery: lost, doubled or misrouted
    "DLV-01": "killed after the model answered and before the platform took the answer",
    "DLV-02": "a handler that breaks before anything is written must not swallow the update",
    "DLV-03": "an update that is offered again after a restart is known",
    "DLV-05": "what waits behind a turn survives a reload in its order",
    "DLV-06": "a platform hears 'received' only when the message is on disk",
    "DLV-07": "a send whose answer is lost is no reason for a silent second one",
    "DLV-09": "what a tool has already said is not repeated as the answer",
    "DLV-10": "one message is never active and queued at once",
    "DLV-11": "an old answer never comes out under a later message",
    "DLV-13": "internal blocks never reach the chat, not even as an echo",
    "DLV-14": "every attended turn ends with an answer, an honest failure or a named silence",
    "DLV-15": "deliberate silence of a background poll is a success",
    "DLV-17": "the first start of a polling channel does not replay its past",
    "DLV-18": "what was written while we were down is answered, or told that it is too old",
    "DLV-19": "one update that can never be read does not block the others",
    # Queue, stop, steering
    "QUE-01": "a stop is acknowledged at once in every phase, and nothing of the turn starts afterwards",
    "QUE-02": "a stop of nothing does not arm itself for the next turn",
    "QUE-03": "a denied aim is not asked for again and again, and a stop is seen meanwhile",
    "QUE-05": "no two conversations ever share a key",
    "QUE-06": "a steering message is applied once",
    "QUE-07": "a turn that ends at once is no crash",
    "QUE-09": "many thousands of chats leave nothing in memory",
    # Commands and what they leave
    "EXE-01": "a command that is ended takes its children along",
    "EXE-02": "the end of a job ends what its tools started",
    "EXE-03": "a command can be ended apart from the daemon",
    "EXE-05": "a new session, a double fork or another environment is no way out",
    "EXE-06": "only processes of ours are waited for, each by its number",
    "EXE-07": "a command that reads gets the end of the file, and nobody is asked for a password",
    "EXE-09": "endless output ends at a cap, and both of its ends are kept",
    "EXE-10": "output of any bytes breaks nothing",
    "EXE-11": "what is said after the end is thrown away",
    "EXE-13": "text is never cut inside a character",
    "EXE-14": "what looks like a path in a command is no reason to refuse it",
    # Secrets
    "SEC-01": "no token in a log, trace or reply, whatever fails",
    "SEC-02": "every form of a secret is known to the redactor",
    "SEC-03": "an address with credentials is shown without them",
    "SEC-05": "children see no keys",
    "SEC-06": "a value with a line break defines no second variable",
    "SEC-07": "two installs on one machine share no secret",
    "SEC-09": "a locked keychain does not keep the daemon down",
    "SEC-10": "a secret that cannot be read is an error that names its key",
    # Voice
    "VOX-01": "an interruption before the first sound cuts nothing",
    "VOX-02": "a slow tool does not freeze a call",
    "VOX-03": "a recoverable provider event does not end a call, and its cost is counted once",
    "VOX-05": "a voice note over the cap is told, and caption and transcript are both kept",
    "VOX-06": "the voice and its rules are those that were configured",
    # Injection and memory
    "INJ-01": "fetched text cannot pass for a notice of ours",
    "INJ-02": "hidden text in a document reaches no command",
    "INJ-03": "text from a document becomes no standing rule",
    "INJ-05": "the model cannot write its own identity files",
    "INJ-06": "what a guest tells does not enter the owner's memory",
    "INJ-07": "a prompt shows every character of what it approves",
    # Rules: who may reach us
    "R-1": "an address proves nothing; every route wants a token",
    "R-2": "host and origin are checked before anything changes state",
    "R-3": "the local socket is private and knows its peer",
    "R-4": "a setup token works once, for a while, and is never in a page",
    "R-5": "a page sends no credentials to an address out of its own URL",
    "R-6": "trust is computed once, here, and no payload can set it",
    "R-7": "nobody creates what has more rights than himself",
    "R-8": "secrets are compared in constant time, and against what is valid now",
    "R-9": "history from outside holds user text only",
    "R-10": "a webhook without a secret does not exist",
    "R-11": "a webhook is judged cheap steps first, and parsed last",
    "R-12": "a replay is known by the platform's own id, durably, before any effect",
    "R-13": "whatever is kept per remote is bounded",
    "R-14": "only ids that never change name a person",
    "R-15": "an empty, missing or wildcard list means nobody",
    "R-16": "every kind of inbound event passes the same check",
    "R-17": "a private chat and a group are different, and keys are kept whole",
    "R-18": "a sender whom the platform does not vouch for is a guest at most",
    # Rules: rights, commands, approvals, files
    "R-19": "rights are checked where the effect happens",
    "R-20": "what is started on behalf of somebody has no right that he lacks",
    "R-21": "a button carries an id that says nothing",
    "R-22": "shell text is never judged; shell is unlimited or not given",
    "R-23": "no interpreter or wrapper stands in an allow list",
    "R-24": "patterns never unlock anything, and a guard that cannot run blocks",
    "R-25": "what was approved is exactly what is done",
    "R-26": "a prompt shows all of it or is refused",
    "R-27": "an approval works once, for a minute, where it was asked, and not after a restart",
    "R-28": "the risk of a tool is what our registry says",
    "R-29": "one module opens files, and checks what it has opened",
    "R-30": "a name from outside is data and never a path",
    "R-31": "trees are deleted only inside folders that we made, and never through a link",
    "R-32": "media lie in our own folders, and names are compared as the disk compares them",
    "R-33": "commands run behind walls that the system holds, and status says which",
    # Rules: what is installed, what is configuration
    "R-34": "nothing is loaded because it appeared in a folder",
    "R-35": "archives are unpacked with limits, plain files only",
    "R-36": "plugins run in a process of their own, with no environment of ours",
    "R-37": "programs are called with fixed options, and git runs nothing that a repository names",
    "R-38": "nothing in a workspace, repository or download is configuration or code",
    "R-39": "writers of configuration keep its grammar",
    "R-40": "a child gets the variables of a list, and none that makes programs load something",
    # Rules: addresses, settings, secrets
    "R-41": "one guarded client asks what others have chosen",
    "R-42": "the browser obeys the same guard",
    "R-43": "no other module opens a client",
    "R-44": "no tool writes configuration",
    "R-45": "secrets are in no environment, argument, prompt, trace or log",
    "R-46": "a credential is added when a request is sent, for named hosts only",
    "R-47": "files are made with their final mode",
    "R-48": "redaction knows the secrets themselves",
    # Rules: words from outside, exhaustion, exposure
    "R-49": "after words from outside a risky call needs the owner's yes",
    "R-50": "words from outside are data in a fence that they cannot close",
    "R-51": "memory is written from the owner's turns only",
    "R-52": "an address or a message that the model made up asks before it carries something out",
    "R-53": "the agent reads neither its own logs, traces and settings nor its socket",
    "R-54": "every reader has a bound and an end",
    "R-55": "the browser is driven over a pipe",
    "R-56": "listening beyond this machine is a choice that is told",
    "R-57": "status shows the version, its age and what is known against it",
    # Paths and the sandbox
    "SBX-01": "a link inside leads to nothing outside",
    "SBX-02": "a link whose target is missing is not written through",
    "SBX-03": "the text of a command proves nothing",
    "SBX-05": "another spelling of a name is the same name",
    "SBX-06": "no first word vouches for a second command",
    "SBX-07": "no yes is kept for a wrapper",
    "SBX-09": "expansion after a check opens nothing",
    "SBX-10": "git takes no option that runs a program",
    "SBX-11": "the settings of a repository run nothing",
    "SBX-13": "the sandbox holds wherever a turn came from",
    "SBX-14": "an empty list of tools means none",
    "SBX-15": "what a caller cannot see he cannot call",
    "SBX-17": "one question is not asked again and again",
    # Requests to the outside
    "NET-01": "each redirect is judged anew",
    "NET-02": "a name is looked up once, and every answer is judged",
    "NET-03": "an inside address is known in every spelling",
    "NET-05": "no proxy of the environment comes between",
    "NET-06": "a page of any bytes and size breaks nothing",
    "NET-07": "no header follows to another origin",
}

JOBS = "scheduled and background work comes later"
PLATFORMS = "the adapters of the platforms come later"
STEERING = "a running turn cannot be steered yet"
CALLS = "voice calls come later"
WEB = "the web page and webhook routes come later"

PLUGINS = "plugins come later"
BROWSER = "the browser comes later"
ADVISORIES = "no list of advisories is read yet"

OPEN = {
    "DLV-15": JOBS,
    "DLV-17": PLATFORMS,
    "QUE-06": STEERING,
    "VOX-01": CALLS,
    "VOX-02": CALLS,
    "VOX-03": CALLS,
    "VOX-06": CALLS,
    "R-4": WEB,
    "R-5": WEB,
    "R-10": WEB,
    "R-11": WEB,
    "R-18": PLATFORMS,
    "R-35": PLUGINS,
    "R-36": PLUGINS,
    "R-42": BROWSER,
    "R-55": BROWSER,
    "R-56": WEB,
    "R-57": ADVISORIES,
}
