"""What analyses look like: pages, figures and exports; nothing here computes a figure."""
