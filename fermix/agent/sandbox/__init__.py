"""Facade: the policy on paths, folders and commands, and the one way to change it."""

from fermix.agent.sandbox.changes import Change, GrantPath, Proposal, RevokePath, SetMode
from fermix.agent.sandbox.place import Place
from fermix.agent.sandbox.policy import Policy
from fermix.agent.sandbox.roots import Root
from fermix.agent.sandbox.sandbox import Sandbox
from fermix.agent.sandbox.settings import Mode, SandboxSettings

__all__ = [
    "Change", "GrantPath", "Mode", "Place", "Policy", "Proposal", "RevokePath", "Root", "Sandbox", "SandboxSettings",
    "SetMode",
]  # fmt: skip
