"""proximo: Proximal Policy Optimization, complete."""

__version__ = "0.1.0"
