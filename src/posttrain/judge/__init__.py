"""Bringing in a judge that an earlier run trained and tested."""
