"""What clients may ask about the cost of models. The same function answers the verb where no daemon
runs: cli/offline.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fermix.agent.budget import Budget, report
from fermix.daemon.params import Params, Result, checked
from fermix.daemon.socket import Call, RequestError
from fermix.protocol.methods import Code
from fermix.protocol.usage import GetUsage

USUAL_DAYS = 7
MOST_DAYS = 3_660


def usage_methods(budget: Budget) -> Mapping[str, Callable[[Call], Awaitable[Result]]]:
    """Return the methods by name."""
    return {"usage": lambda call: usage(budget, call.params)}


async def usage(budget: Budget, params: Params) -> Result:
    wish = checked(GetUsage, params)
    days, month = wish.get("days"), wish.get("month", False)
    if month and days is not None:
        raise RequestError(Code.INVALID_PARAMS, "either days or month")
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise RequestError(Code.INVALID_PARAMS, f"days takes 1 to {MOST_DAYS}")
    return dict(await report(budget, days=None if month else days or USUAL_DAYS))
