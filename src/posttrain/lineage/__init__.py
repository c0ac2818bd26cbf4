"""The lineage of a row: where it came from, what dropped it, and what it reached."""
