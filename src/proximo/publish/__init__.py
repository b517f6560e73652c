"""Publishing and fetching policies, in a folder or on the Hugging Face Hub."""

from proximo.publish.fetching import pull
from proximo.publish.publishing import Published, push

__all__ = ["Published", "pull", "push"]
