"""What spark-submit runs: ``kjms spark`` with its arguments. As a module it prints where its file is.

spark-submit --packages ... $(python3 -m kjms.spark.submit) archive orders --path ... --checkpoint ...
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(__file__)
    else:
        from kjms.cli import main

        sys.exit(main(["spark", *sys.argv[1:]]))
