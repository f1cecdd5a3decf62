"""What the messages of the facades' clients have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


class Model(BaseModel):
    """An object of a message: unknown members are passed over, and what may be absent may not be null, but for `nullable`."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)
    nullable: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _absent_is_not_null(cls, value: Any) -> Any:
        for name in cls.model_fields.keys() & value.keys() if isinstance(value, dict) else ():
            if value[name] is None and name not in cls.nullable:
                raise ValueError(f"{name} is null")
        return value
