"""Facade: git_read and git_write, git by argument vector on a repository that nobody trusts.

`tool.py` runs git; `arguments.py` decides which arguments it may get, `repository.py` which folders, `settings.py`
which settings of the repository it may read.
"""

from fermix.agent.tools.git.tool import tools

__all__ = ["tools"]
