"""What every persisted record is: frozen, strict, versioned, unknown fields refused."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from raykit.errors import CorruptError
from raykit.ids import MAX_JSON_BYTES, canonical, parse_json

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]

R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """Base of everything persisted."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False
    )

    closes: ClassVar[bool] = False
    """An event after which its log may rest for long: the writer leaves a snapshot then."""

    max_bytes: ClassVar[int] = MAX_JSON_BYTES
    """What a file of it may have: a larger one is not read at all."""

    _left_out: ClassVar[frozenset[str]] = frozenset()
    """The fields whose default is None, by their JSON names."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        fields = cls.model_fields.items()
        cls._left_out = frozenset(
            field.alias or name for name, field in fields if field.default is None and not field.is_required()
        )

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A null that means something (`prev` of the first entry, a loss that was not finite) stays.
        left_out = self._left_out
        return {
            name: value for name, value in handler(self).items() if value is not None or name not in left_out
        }

    def plain(self) -> dict[str, Any]:
        """The record as JSON values; fields that hold their default None are left out."""
        return self.model_dump(mode="json", by_alias=True)

    def to_bytes(self) -> bytes:
        """The record as canonical JSON."""
        return canonical(self.plain())

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> Self:
        """Read a record strictly; `what` names the bytes in errors.

        Raises:
            CorruptError: not JSON, an unknown or missing field, a wrong type, or a newer schema.
        """
        # duplicate keys and NaN, which the next line would let through
        parse_json(data, what, max_bytes=cls.max_bytes)
        try:
            return cls.model_validate_json(data, by_alias=True, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise CorruptError(
                f"{what} is not a {cls.__name__} record: {field}: {first['msg']}", field=field
            ) from error


class Versioned(Record):
    """A record that stands alone in a file."""

    schema_: Annotated[int, Field(ge=1, le=1)] = Field(default=1, alias="schema")

    @model_validator(mode="after")
    def _says_its_schema(self, info: ValidationInfo) -> Self:
        if info.mode == "json" and "schema_" not in self.model_fields_set:
            raise ValueError("`schema` is missing")
        return self
