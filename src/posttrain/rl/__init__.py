"""Reinforcement learning: our own loop, with a family of plug-ins at each of its steps."""
