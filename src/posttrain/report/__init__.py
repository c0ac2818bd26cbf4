"""What people look at: one self-contained page and `summary.json`."""
