"""Checks of arguments."""

import numbers
from typing import Any, TypeGuard


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether ``value`` is an integer of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether ``value`` is a real number of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
