"""Does speculation pay, over concurrency: the sweep, the break-even, and what would move it. See docs/economics.md."""
