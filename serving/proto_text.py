"""Message definitions as text, in the language of .proto files, turned into what a pool of descriptors takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2

_TOKEN: Final = re.compile(r'//[^\n]*|\s+|([\w.]+|"[^"]*"|[][{}()<>=;,])')
_FIELD: Final = re.compile(r'(\w+)=(\d+)(?:\[json_name="(\w+)"\])?')
_SCALARS: Final = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes")
}


def file_descriptor(path: str, text: str) -> Any:
    """The FileDescriptorProto of a file in proto3.

    It knows what we write: package, import, message, enum, service, oneof, map and repeated; of options json_name
    alone; and each name is of the file's package or written out in full.

    Args:
        path: The file's name, as other files import it.
        text: What stands in it.

    Raises:
        ValueError: It says something else.
    """
    file = descriptor_pb2.FileDescriptorProto(name=path, syntax="proto3")
    parser = _Parser(text)
    for word in parser.words:
        match word:
            case "package":
                file.package = parser.until(";")
            case "import":
                file.dependency.append(parser.until(";").strip('"'))
            case "message":
                parser.message(file.message_type.add())
            case "enum":
                parser.enum(file.enum_type.add())
            case "service":
                parser.service(file.service.add())
            case _:
                raise ValueError(f"{path}: {word!r} does not begin a definition")
    return file


class _Parser:
    """Reads definitions from words; each method begins behind the word that named its kind, and ends behind `}`."""

    def __init__(self, text: str) -> None:
        if odd := _TOKEN.sub("", text):
            raise ValueError(f"{odd!r:.80} has no meaning here")
        self.words: Iterator[str] = (word for word in _TOKEN.findall(text) if word)

    def until(self, end: str) -> str:
        """The words before a mark, together: "inputs=2" of `inputs = 2;`."""
        return "".join(iter(lambda: next(self.words), end))

    def message(self, message: Any) -> None:
        message.name = self.until("{")
        for word in iter(lambda: next(self.words), "}"):
            match word:
                case "message":
                    self.message(message.nested_type.add())
                case "enum":
                    self.enum(message.enum_type.add())
                case "oneof":
                    message.oneof_decl.add(name=self.until("{"))
                    for kind in iter(lambda: next(self.words), "}"):
                        self.field(message, kind).oneof_index = len(message.oneof_decl) - 1
                case "map":
                    self.map(message)
                case "repeated":
                    self.field(message, next(self.words)).label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                case kind:
                    self.field(message, kind)

    def field(self, message: Any, kind: str) -> Any:
        statement = self.until(";")
        match = _FIELD.fullmatch(statement)
        if match is None:
            raise ValueError(f"{statement!r:.80} is not a field")
        name, number, json_name = match.groups()
        # Without a name of its own the one that protoc derives.
        json_name = json_name or re.sub("_([a-z0-9]?)", lambda letter: letter[1].upper(), name)
        field = message.field.add(name=name, number=int(number), json_name=json_name)
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type_name = kind  # the pool sees whether it is a message or an enum
        return field

    def map(self, message: Any) -> None:
        """A map is a list of entries, messages of their own: what protoc makes of it."""
        key, _, value = self.until(">").removeprefix("<").partition(",")
        field = self.field(message, "")
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        field.type_name = field.name.title().replace("_", "") + "Entry"
        entry = message.nested_type.add(name=field.type_name)
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            part = entry.field.add(name=name, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
            if kind in _SCALARS:
                part.type = _SCALARS[kind]
            else:
                part.type_name = kind

    def enum(self, enum: Any) -> None:
        enum.name = self.until("{")
        for name in iter(lambda: next(self.words), "}"):
            enum.value.add(name=name, number=int(self.until(";").removeprefix("=")))

    def service(self, service: Any) -> None:
        service.name = self.until("{")
        for _ in iter(lambda: next(self.words), "}"):  # rpc
            method = service.method.add(name=self.until("("))
            method.input_type, method.client_streaming = self.streamed()
            self.until("(")  # returns
            method.output_type, method.server_streaming = self.streamed()
            self.until(";")

    def streamed(self) -> tuple[str, bool]:
        kind = next(self.words)
        stream = kind == "stream"
        if stream:
            kind = next(self.words)
        self.until(")")
        return kind, stream
