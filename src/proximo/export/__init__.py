"""A trained policy for use without proximo and without JAX: as an ONNX model, and for NumPy alone."""

from proximo.export.folder import Exported, export, onnx_is_there
from proximo.export.parity import ParityError

__all__ = ["Exported", "ParityError", "export", "onnx_is_there"]
