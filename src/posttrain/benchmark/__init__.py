"""Benchmarks: suites as declarations, scorers, and the stage that runs them."""
