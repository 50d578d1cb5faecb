"""The base of every section of a task file, and the types of its fields.

A field is declared once, in model.py, resources.py or the options of a driver: its type, bounds, default and
description. The reader, the error messages, the JSON Schema, the table in docs/task-files.md and the keys of the
configuration are made from that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from orchestrator.options import Refused
from orchestrator.task.errors import InvalidValueError

# Before it builds a validator pydantic looks through all installed packages for plugins, which takes longer than all
# else that reading a task does, and would load foreign code. orch uses none: a loader that finds none is put in place.
_loader = ModuleType("pydantic.plugin._loader")
setattr(_loader, "get_plugins", tuple)  # noqa: B010 - a module has no such attribute for the type checker
sys.modules.setdefault(_loader.__name__, _loader)

Json: TypeAlias = dict[str, Any]
LARGEST = 2**53  # up to here every whole number is exact in JSON


class Section(BaseModel):
    """A map with known keys. A key whose value is null counts as absent.

    Attributes:
        refused: Keys of the SkyPilot dialect that are refused with a reason.
        short_forms: JSON Schemas of what may stand for the whole map; `expand` turns them into a map.
    """

    # defer_build: a validator is built when a file first needs it, which halves the cost of reading a small file.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    refused: ClassVar[Mapping[str, Refused]] = {}
    short_forms: ClassVar[tuple[Json, ...]] = ()

    @classmethod
    def expand(cls, value: Any) -> Any:
        """Return the map that a short form stands for, and any other value unchanged."""
        return value

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        data = cls.expand(value)
        if not isinstance(data, dict):
            return data
        known = cls.model_fields
        return {key: item for key, item in cast("Json", data).items() if item is not None or key not in known}

    @classmethod
    @cache
    def json_schema(cls) -> Json:
        """Return the JSON Schema of this section, without references."""
        from orchestrator.task.schema import make_section_schema

        return make_section_schema(cls)


def skypilot(default: Any, description: str, form: str | None = None, **more: Any) -> Any:
    """Declare a field of the public SkyPilot dialect.

    Args:
        default: The value of an absent field.
        description: What the field means, for the documentation and for editors.
        form: What the value must be, for people ("a bucket address"); derived from the type when absent.
        more: `config`, whether the configuration can set it; `unset`, what the provider uses without it;
            `repr=False` for values that are never printed.
    """
    return _declare(default, description, {**more, "form": form})


def own(default: Any, description: str, form: str | None = None, **more: Any) -> Any:
    """Declare a field that the SkyPilot dialect does not have.

    Args:
        default: As for `skypilot`.
        description: As for `skypilot`.
        form: As for `skypilot`.
        more: As for `skypilot`; also `alias`, the dialect's field of `resources.job_recovery` that means the same.
    """
    return _declare(default, description, {**more, "form": form, "own": True})


def _declare(default: Any, description: str, more: Json) -> Any:
    shown = more.pop("repr", True)
    extra = {f"x-{key}": value for key, value in more.items() if value is not None}
    return Field(default=default, description=description, repr=shown, json_schema_extra=extra)


def must_be(form: str) -> FieldInfo:
    """Say what a value must be, for people, where its type does not say enough."""
    info: FieldInfo = Field(json_schema_extra={"x-form": form})
    return info


class _Lazy:
    """Validate by the section's own validator, which is built when first used: most files have few sections."""

    def __get_pydantic_core_schema__(self, source: type[Section], handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object) -> Section:
            return value if isinstance(value, source) else source.model_validate(value)

        def describe(schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
            return source.json_schema()

        return core_schema.no_info_plain_validator_function(validate, metadata={"pydantic_js_functions": [describe]})


class _Resolved:
    """A value made by orch itself, which is not checked again."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()


_T = TypeVar("_T")
LAZY = _Lazy()
Lazy = Annotated[_T, LAZY]
Resolved = Annotated[_T, _Resolved()]


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map that is kept as a tuple of pairs, so that it is frozen and hashable.

    Attributes:
        kind: The type of the map as written.
        convert: Makes the pairs of the map; its errors are reported at the map.
        single: Whether one text is allowed in place of the map; it is kept under the key "".
    """

    kind: Any
    convert: Callable[[Any], tuple[tuple[str, str], ...]] = lambda written: tuple(written.items())
    single: bool = False

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object, check: Callable[[object], Any]) -> object:
            if isinstance(value, tuple):
                return cast("object", value)
            return self.convert(check({"": value} if self.single and isinstance(value, str) else value))

        return core_schema.no_info_wrap_validator_function(
            validate,
            handler.generate_schema(self.kind),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        found = handler(schema)
        return {"anyOf": [found["additionalProperties"], found]} if self.single else found


class OneOrMany:
    """A list, in place of which a single item is allowed."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def as_list(value: object) -> object:
            return cast("object", value) if isinstance(value, list | tuple | dict) else [value]

        return core_schema.no_info_before_validator_function(as_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        found = handler(schema)
        return {"anyOf": [found["items"], found]}


@dataclass(frozen=True, slots=True)
class OrText:
    """A value that may be written as text of a certain form, such as `500GB`.

    Attributes:
        pattern: Regular expression that the whole text matches.
        form: What such a text is, for people.
        parse: Turns the text into the value, whose bounds are then checked.
    """

    pattern: str
    form: str
    parse: Callable[[str], object]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def from_text(value: object) -> object:
            is_form = isinstance(value, str) and re.fullmatch(self.pattern, value)
            return self.parse(value) if is_form and isinstance(value, str) else value

        return core_schema.no_info_before_validator_function(from_text, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return {"anyOf": [handler(schema), text_schema(self.form, self.pattern)]}


@dataclass(frozen=True, slots=True)
class AnyCase:
    """One of a few words in upper case, which may be written in any case."""

    choices: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def upper(value: object) -> object:
            return value.upper() if isinstance(value, str) else value

        return core_schema.no_info_before_validator_function(upper, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return {"type": "string", "examples": list(self.choices)}


class _Scalar:
    """Text, a number, true, false or null, kept as written."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(value: object) -> object:
            if isinstance(value, list | dict):
                raise PydanticKnownError("string_type")
            return value

        return core_schema.no_info_plain_validator_function(check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return {"type": ["string", "number", "boolean", "null"], "x-form": "text, a number, true or false, or nothing"}


def text_schema(form: str, pattern: str = r".*\S.*") -> Json:
    """Return the JSON Schema of a text of which the whole matches `pattern`."""
    return {"type": "string", "pattern": f"^(?:{pattern})$", "x-form": form}


def _refuse_empty(value: object) -> object:
    if value == "":
        raise InvalidValueError("`{path}` is empty", next_step="remove it, or write a value")
    return value


Scalar = Annotated[Any, _Scalar()]
Written = BeforeValidator(_refuse_empty)  # for a choice whose "" stands for an absent field only
Text = Annotated[str, Field(pattern=r"\S")]
Script = Annotated[str, must_be("a script")]
Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True, ge=1, le=LARGEST)]
Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST)]
Positive = Annotated[float, Field(strict=True, gt=0, le=LARGEST, allow_inf_nan=False)]
# 64 TiB: the largest volume of Amazon EBS and of Persistent Disk (their "limits" pages, read 2026-11-23).
Gigabytes = Annotated[int, Field(strict=True, ge=1, le=65_536)]
UserName = Annotated[str, Field(pattern=r"^[^-@:\s][^@:\s]*$"), must_be("a user name")]
Percent = Annotated[int, Field(strict=True, ge=1, le=100)]
Hours = Annotated[float, Field(strict=True, gt=0, le=87_600, allow_inf_nan=False)]  # ten years
Minutes = Annotated[int, Field(strict=True, ge=1, le=525_600)]  # a year
NotNegative = Annotated[float, Field(strict=True, ge=0, le=LARGEST, allow_inf_nan=False)]
ExitCode = Annotated[int, Field(strict=True, ge=1, le=255)]
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
