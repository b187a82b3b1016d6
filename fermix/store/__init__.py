"""The one SQLite store. Rooms above ask `Database` and never import sqlite3 themselves."""

from fermix.store.check import ContentCheck
from fermix.store.database import Connection, Database, SqlValue
from fermix.store.faults import Damaged, IndexDamaged
from fermix.store.full_text import filling

__all__ = ["Connection", "ContentCheck", "Damaged", "Database", "IndexDamaged", "SqlValue", "filling"]
