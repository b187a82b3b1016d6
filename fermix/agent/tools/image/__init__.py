"""Facade: generate_image, by whichever company the owner has a key for.

`choice.py` finds it, `wires.py` speaks to it, `pictures.py` knows pictures by their first bytes, `tool.py` is the tool.
"""

from fermix.agent.tools.image.choice import find_backend
from fermix.agent.tools.image.tool import tools

__all__ = ["find_backend", "tools"]
