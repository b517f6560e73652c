"""Bridges to other frameworks, each an extra of its name and a module of its own: nothing of them is imported by anything else."""
