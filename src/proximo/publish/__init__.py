"""A policy goes to others and comes back: a folder with a card, its results and a clip, in a directory or on the Hugging Face Hub."""

from proximo.publish.fetching import pull
from proximo.publish.publishing import Published, push

__all__ = ["Published", "pull", "push"]
