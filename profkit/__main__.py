"""``python -m profkit``."""

from profkit.cli import entry

if __name__ == "__main__":
    entry()
