"""Settings files and command lines of other libraries, as ours, by the tables of ``proximo.other_libraries``."""

from proximo.convert.conversion import Converted, convert

__all__ = ["Converted", "convert"]
