"""Publishing and fetching policies, in a folder or on the Hugging Face Hub."""

from proximo.publish.publishing import Published, pull, push

__all__ = ["Published", "pull", "push"]
