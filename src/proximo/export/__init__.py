"""Export of a trained policy, for use without proximo and JAX: an ONNX model, and a Python file that runs it by ONNX Runtime."""

from proximo.export.folder import ExportResult, export
from proximo.export.parity import ParityError

__all__ = ["ExportResult", "ParityError", "export"]
