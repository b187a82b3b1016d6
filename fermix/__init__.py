"""Fermix: a self-hosted personal AI agent for one owner."""

__version__ = "0.1.0"
