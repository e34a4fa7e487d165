"""coterie: train small groups of language models to work together, and say honestly whether it worked."""

__version__ = "0.1.0"
