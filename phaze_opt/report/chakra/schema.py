"""The messages of Chakra's ``et_def.proto`` that traces are written with: their fields by name, number and type.

Source: https://github.com/mlcommons/chakra, schema/protobuf/et_def.proto at commit 6dc63e1. Fields and values of
attributes that are never written are left out; numbers on the wire are the same with and without them.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any

SCHEMA_VERSION = "0.0.4"
"""What Chakra's own generators write as ``GlobalMetadata.version``."""
PACKAGE = "ChakraProtoMsg"


class TraceNodeKind(IntEnum):
    """Kinds of nodes that are written (``NodeType``)."""

    INVALID_NODE = 0
    COMP_NODE = 4
    COMM_COLL_NODE = 7


class CommKind(IntEnum):
    """Kinds of collectives that are written (``CollectiveCommType``, as the attribute ``comm_type`` holds them)."""

    ALL_REDUCE = 0
    ALL_GATHER = 2
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7


_Fields = Sequence[tuple[str, int, str]]
"""Name, number and type of each field; ``*`` behind the type of one that is repeated."""
_ATTRIBUTE: _Fields = (
    ("name", 1, "string"),
    ("double_val", 3, "double"),
    ("int64_val", 9, "int64"),
    ("uint64_val", 13, "uint64"),
    ("bool_val", 27, "bool"),
    ("string_val", 29, "string"),
)
_MESSAGES: Mapping[str, _Fields] = {
    "AttributeProto": _ATTRIBUTE,
    "GlobalMetadata": (("version", 1, "string"), ("attr", 2, "AttributeProto*")),
    "Node": (
        ("id", 1, "uint64"),
        ("name", 2, "string"),
        ("type", 3, "NodeType"),
        ("data_deps", 5, "uint64*"),
        ("duration_micros", 7, "uint64"),
        ("attr", 10, "AttributeProto*"),
    ),
}


@cache
def message_class(name: str) -> Any:
    """The class of a message of the schema.

    Args:
        name: ``GlobalMetadata``, ``Node`` or ``AttributeProto``.
    """
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    """The schema as the library holds it; apart from what other packages describe under the same names."""
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return pool


def _file() -> Any:
    """The schema as the library describes it."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")
    kinds = file.enum_type.add(name="NodeType")
    for kind in TraceNodeKind:
        kinds.value.add(name=kind.name, number=kind.value)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, *field)
    return file


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    """Describe a field; the values of an attribute exclude each other."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Types

    word = kind.removesuffix("*")
    field = message.field.add(name=name, number=number)
    field.label = Types.LABEL_REPEATED if kind.endswith("*") else Types.LABEL_OPTIONAL
    if word == "NodeType":
        field.type, field.type_name = Types.TYPE_ENUM, f".{PACKAGE}.{word}"
    elif word in _MESSAGES:
        field.type, field.type_name = Types.TYPE_MESSAGE, f".{PACKAGE}.{word}"
    else:
        field.type = Types.Type.Value(f"TYPE_{word.upper()}")
    if name.endswith("_val"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="value")
        field.oneof_index = 0
