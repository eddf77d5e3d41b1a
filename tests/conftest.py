"""For all tests: Java without its second compiler.

A broker of the tests lives for seconds, and that compiler takes a third of the processors' time to make it faster in
minutes. Benchmarks run without this.
"""

import os

os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
