"""Names that other libraries use for our settings, classes and commands.

Each file in ``data`` lists every setting of one library for PPO, with ours and what differs. Error messages,
``proximo convert`` and the pages for users of other libraries are made from these files.
"""

from proximo.other_libraries.answers import answer, answer_flags, answer_name, answer_verb, is_environment
from proximo.other_libraries.library import Entry, Library, libraries, load

__all__ = ["Entry", "Library", "answer", "answer_flags", "answer_name", "answer_verb", "is_environment", "libraries", "load"]
