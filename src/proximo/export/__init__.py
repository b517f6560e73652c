"""Export of a trained policy to ONNX, for use without proximo and JAX."""

from proximo.export.folder import ExportResult, export
from proximo.export.parity import ParityError

__all__ = ["ExportResult", "ParityError", "export"]
