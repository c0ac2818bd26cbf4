"""The embedded default: a small base model that this package pretrains on its own tasks."""
