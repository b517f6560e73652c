"""Settings files and command lines of other libraries, as ours. The tables are the files of ``proximo.other_libraries``."""

from proximo.convert.conversion import Converted, convert

__all__ = ["Converted", "convert"]
