"""Who may do what: two levels of trust, six classes of effect.

Trust is decided once, in `gateway/authorize.py`, and travels in frozen values. It has no default anywhere.
"""

from __future__ import annotations

from enum import StrEnum


class Trust(StrEnum):
    """How far a sender is trusted. There is nothing between the two and no third."""

    OPERATOR = "operator"
    GUEST = "guest"


class PolicyClass(StrEnum):
    """What a capability can do to the world."""

    READ_ONLY = "read_only"
    READ_WRITE = "read_write"
    EXEC = "exec"
    NETWORK = "network"
    EXTERNAL_API = "external_api"
    GUI_CONTROL = "gui_control"


GUEST_CLASSES = frozenset({PolicyClass.READ_ONLY})
OPERATOR_CLASSES = frozenset(PolicyClass)


def classes_for(trust: Trust | None) -> frozenset[PolicyClass]:
    """Return the classes a caller reaches; no trust stated means guest."""
    return OPERATOR_CLASSES if trust is Trust.OPERATOR else GUEST_CLASSES
