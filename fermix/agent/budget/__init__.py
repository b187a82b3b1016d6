"""What the models cost and how much they may: one ledger in which each call is booked, and limits before it."""

from fermix.agent.budget.budget import Booking, Books, Budget, Call, Outcome, TurnRef, Unmetered
from fermix.agent.budget.money import Price
from fermix.agent.budget.report import report
from fermix.agent.budget.settings import SECTION, BudgetSettings
from fermix.agent.budget.words import BudgetReached, PriceUnknown

__all__ = [
    "SECTION",
    "Booking",
    "Books",
    "Budget",
    "BudgetReached",
    "BudgetSettings",
    "Call",
    "Outcome",
    "Price",
    "PriceUnknown",
    "TurnRef",
    "Unmetered",
    "report",
]
