"""``python -m profkit``."""

import sys

from profkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
