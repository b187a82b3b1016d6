"""The gateway: who may speak, in what order, and the way back."""

from fermix.gateway.authorize import Access, Authorizer
from fermix.gateway.channel import Abilities, Channel
from fermix.gateway.gateway import Gateway
from fermix.gateway.intake import Rooms
from fermix.gateway.ledger import Ledger

__all__ = ["Abilities", "Access", "Authorizer", "Channel", "Gateway", "Ledger", "Rooms"]
