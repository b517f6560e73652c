"""Settings files and command lines of other libraries as ours."""

from proximo.convert.conversion import Converted, convert

__all__ = ["Converted", "convert"]
