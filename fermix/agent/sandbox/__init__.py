"""Facade: the policy on paths, folders and commands."""

from fermix.agent.sandbox.roots import Root
from fermix.agent.sandbox.sandbox import Place, Sandbox
from fermix.agent.sandbox.settings import SandboxSettings

__all__ = ["Place", "Root", "Sandbox", "SandboxSettings"]
