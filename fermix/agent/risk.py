"""Which call needs the owner's yes, and why: rule R-49, rights that do not depend on a model saying no.

Called by `dispatch.py` before a tool runs, and by tools whose `asks` goes by the same rules. Pure: it looks at the
call and at what the turn has read, and at nothing else. The reasons behind each row: docs/decisions/0015.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fermix.agent.capability import Capability, ToolContext
from fermix.agent.exposure import Exposure
from fermix.agent.markers import SUMMARY_BEGINS
from fermix.agent.model import ChatMessage, JsonValue, ToolMessage, ToolResult, UserMessage
from fermix.agent.results import is_framed
from fermix.trust import PolicyClass

ACTING = frozenset({PolicyClass.EXEC, PolicyClass.EXTERNAL_API, PolicyClass.GUI_CONTROL})


def why_asked(capability: Capability, arguments: Mapping[str, JsonValue], context: ToolContext) -> str | None:
    """Say why the owner must agree to this call, None when it is free. A tool that asks by itself is not asked for."""
    if capability.asks_owner:
        return None
    if capability.asks is not None:
        return capability.asks(arguments, context)
    acting = why_acting(context.exposure) if capability.policy in ACTING else None
    return acting or (why_telling(context.exposure) if _leaves(capability) else None)


def why_acting(exposure: Exposure) -> str | None:
    """Of a call that can change anything anywhere: it asks once this turn has read words from outside."""
    return f"this turn has read {_through(exposure)}" if exposure.sources else None


def why_telling(exposure: Exposure) -> str | None:
    """Of a call whose arguments go to somebody else: it asks once words from outside could have chosen them and
    something of this machine could be in them, unless both were in the history before this turn began.
    """
    local = exposure.local or exposure.local_earlier
    if not exposure.outside or not local or not (exposure.sources or exposure.local):
        return None
    return f"this conversation holds {_through(exposure)} beside things of this machine, which this call could send out"


def why_composed(url: str, exposure: Exposure) -> str | None:
    """Of an address that is called: once words from outside are in the context, one that the model made up asks."""
    if exposure.given(url) or not exposure.outside:
        return None
    return f"the model wrote this address itself, after {_through(exposure)}"


def why_shared(exposure: Exposure) -> str | None:
    """Of something of this machine that goes into a chat which others read."""
    return f"others read this chat, and this comes after {_through(exposure)}" if exposure.outside else None


def why_connected(exposure: Exposure) -> str | None:
    """Of a command that wants the network: once words from outside are in the context, it runs without or asks."""
    return f"this command wants the network, after {_through(exposure)}" if exposure.outside else None


def why_lasting(exposure: Exposure, *, rule: bool) -> str | None:
    """Of what every later conversation will be told, or no longer told: it asks once words from outside could have
    chosen it, and a rule for the agent also after something of this machine, where others may have written.
    """
    if exposure.outside:
        return f"this lasts beyond the conversation, and comes after {_through(exposure)}"
    if rule and (exposure.local or exposure.local_earlier):
        return "this changes how I work from now on, and comes after things that were read on this machine"
    return None


def note_result(exposure: Exposure, capability: Capability, result: ToolResult) -> None:
    """Note what a turn has read with this result, as the model sees it.

    Addresses count as given only from successes of the network: a file may hold what the model itself has written
    into it, and a failure what it has asked for.
    """
    if result.outside:
        exposure.read_from(capability.name)
    if result.ok and capability.policy is PolicyClass.NETWORK:
        exposure.note_addresses(result.text)
    if reads_local(capability) and not result.denied:
        exposure.read_local()


def reads_local(capability: Capability) -> bool:
    """Say whether its results hold things of this machine; `outside` False means words of our own."""
    return not capability.brings_outside and capability.outside is None


def exposure_at_start(words: str, earlier: Sequence[ChatMessage], tools: Mapping[str, Capability]) -> Exposure:
    """Return what a turn begins with: `words` is its message, `earlier` the history that it will be shown."""
    results = [message for message in earlier if isinstance(message, ToolMessage)]
    framed = [message for message in results if is_framed(message.text)]
    local = any(message.name not in tools or reads_local(tools[message.name]) for message in results)
    summaries = [message.text for message in earlier if is_summary(message)]
    exposure = Exposure(earlier=bool(framed) or any(map(is_framed, summaries)), local_earlier=local or bool(summaries))
    exposure.note_addresses(words)
    for message in framed:
        tool = tools.get(message.name)
        if message.ok and tool is not None and tool.policy is PolicyClass.NETWORK:
            exposure.note_addresses(message.text)
    return exposure


def is_summary(message: ChatMessage) -> bool:
    """Say whether it stands for older messages, which may have held anything of this machine. Who writes one himself
    only narrows what his conversation may do.
    """
    return isinstance(message, UserMessage) and message.text.startswith(SUMMARY_BEGINS)


def _leaves(capability: Capability) -> bool:
    """Say whether its arguments reach a machine or a program that is not ours."""
    return capability.policy is PolicyClass.NETWORK or capability.foreign


def _through(exposure: Exposure) -> str:
    if not exposure.sources:
        return "words from outside that an earlier turn has read"
    return f"words from outside (through {', '.join(exposure.sources)})"
