"""posttrain: LLM post-training stages that chain into one graph."""

__version__ = "0.1.0"
