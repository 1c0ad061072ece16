"""JSON Schema of protocol values, from the types that parse them, for the OpenAPI document.

msgspec's own generator cannot write the defaults of our byte strings and quantities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import inspect

from cloud_gpu.protocol.units import Quantity
from cloud_gpu.protocol.values import FixedBytes

_REFERENCE: Final = "#/components/schemas/"


class Describer:
    """Collects the schemas of structs under their names."""

    def __init__(self) -> None:
        self.components: dict[str, dict[str, Any]] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type; structs are named in `components` and referred to."""
        return self._of(inspect.type_info(kind))

    def _of(self, kind: inspect.Type) -> dict[str, Any]:
        match kind:
            case inspect.StructType():
                return self._struct(kind)
            case inspect.CustomType():
                return _custom(kind.cls)
            case inspect.UnionType():
                return {"anyOf": [self._of(each) for each in kind.types]}
            case inspect.ListType() | inspect.VarTupleType():
                return {"type": "array", "items": self._of(kind.item_type)}
            case inspect.DictType():
                return {"type": "object", "additionalProperties": self._of(kind.value_type)}
            case inspect.EnumType():
                return {"enum": [member.value for member in kind.cls]}
            case inspect.IntType():
                return {"type": "integer"}
            case inspect.StrType():
                return {"type": "string"}
            case inspect.BytesType():
                return {"type": "string", "contentEncoding": "base64"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.NoneType():
                return {"type": "null"}
            case _:
                raise NotImplementedError(f"no schema for {kind}")

    def _struct(self, kind: inspect.StructType) -> dict[str, Any]:
        name = _name(kind.cls)
        if name not in self.components:
            self.components[name] = {}  # its fields may refer back to it
            properties = {each.encode_name: self._of(each.type) for each in kind.fields}
            required = [each.encode_name for each in kind.fields if each.required]
            if kind.tag_field is not None:
                properties[kind.tag_field] = {"const": kind.tag}
                required.append(kind.tag_field)
            self.components[name] = {
                "type": "object",
                "description": (kind.cls.__doc__ or "").strip(),
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            }
        return {"$ref": _REFERENCE + name}


def _name(kind: Any) -> str:
    """`Signed[Bid]` is "Signed_Bid"."""
    origin = getattr(kind, "__origin__", None)
    if origin is None:
        return str(kind.__name__)
    inside: Sequence[Any] = kind.__args__
    return "_".join([origin.__name__, *map(_name, inside)])


def _custom(kind: type) -> dict[str, Any]:
    if issubclass(kind, FixedBytes):
        return {"type": "string", "pattern": f"^0x[0-9a-fA-F]{{{2 * kind.LENGTH}}}$"}
    if issubclass(kind, Quantity):
        return {"type": "integer", "minimum": 0, "maximum": kind.MAX}
    raise NotImplementedError(f"no schema for {kind}")
