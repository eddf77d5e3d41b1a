"""Puts the stress test's modules, beside this file, within reach of its tests."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)

if HERE not in sys.path:
    sys.path.insert(0, HERE)
