"""``python -m kjms.cli``: the command ``kjms`` where no script of that name is on the PATH."""

import sys

from kjms.cli import main

sys.exit(main())
