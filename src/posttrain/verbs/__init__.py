"""The verbs around a whole graph; each module's `main(argv)` returns an exit code."""
