"""`python -m raykit` is `raykit`."""

import sys

from raykit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
