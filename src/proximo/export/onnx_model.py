"""A program as an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

from proximo.export.onnx_graph import Graph, element_type
from proximo.export.onnx_operations import OPERATIONS
from proximo.export.program import Program, Value
from proximo.export.sizes import axes

OPSET, IR_VERSION = 18, 9
"""Of 2022 and 2023. ONNX Runtime reads them since 1.17."""


def build(program: Program, properties: Mapping[str, str]) -> onnx.ModelProto:
    """The model, checked by ONNX. ``properties`` become its metadata."""
    graph = Graph()
    names = {id(x): name for name, x in program.inputs.items()}

    def name_of(x: Value) -> str:
        if x.constant is not None:
            return graph.constant(x.constant)
        return names[id(x)]

    for node in program.nodes:
        names[id(node.output)] = OPERATIONS[node.operation](graph, node, [name_of(x) for x in node.inputs])
    for name, x in program.outputs.items():
        graph.nodes.append(helper.make_node("Identity", [name_of(x)], [name]))
    read = {name for node in graph.nodes for name in node.input}
    constants = [constant for constant in graph.constants if constant.name in read]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", _described(program.inputs), _described(program.outputs), initializer=constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="proximo",
    )
    helper.set_model_props(model, dict(properties))
    onnx.checker.check_model(model, full_check=True)
    return model


def _described(values: Mapping[str, Value]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, element_type(x.dtype), axes(x.shape)) for name, x in values.items()]
