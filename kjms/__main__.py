"""``python -m kjms``: the command ``kjms`` where no script of that name is on the PATH."""

import sys

from kjms.cli import main

if __name__ == "__main__":
    sys.exit(main())
