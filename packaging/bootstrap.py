"""Make the frozen process an ordinary Python with the environment its user had. Run before our own code.

PyInstaller's loader points LD_LIBRARY_PATH at the unpacked folder and starts itself again; the dynamic linker has
read it by now. Left in place, every program we start would load our libraries instead of its own (faults.md, PKG-01).
This stands in for PyInstaller's own start-up code, which serves archives of modules and imports ctypes, zlib and
more for it; our modules are plain files, and Python's own importer finds them.
"""

import os
import sys

sys.frozen = True
for name in [name for name in os.environ if name.startswith(("_PYI_", "_MEIPASS"))]:
    del os.environ[name]
os.environ.pop("LD_LIBRARY_PATH", None)
users_path = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
if users_path is not None:
    os.environ["LD_LIBRARY_PATH"] = users_path
