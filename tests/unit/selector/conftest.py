"""Puts the shared table of selector cases, and the reference evaluator beside this file, within reach of the tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent

for folder in (HERE, HERE.parents[1]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
