"""`Record`: frozen dataclasses that JAX can carry."""

from __future__ import annotations

import dataclasses
from typing import Any, Self, dataclass_transform

import jax


def static(**kwargs: Any) -> Any:
    """A field that is part of the type, not of the data: hashable, no arrays; a new value means a new compile."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
class Record:
    """Base of every record: a subclass becomes a frozen dataclass and a pytree; `static()` fields are its metadata."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        jax.tree_util.register_dataclass(
            cls,
            data_fields=[field.name for field in fields if not field.metadata.get("static")],
            meta_fields=[field.name for field in fields if field.metadata.get("static")],
        )

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; an unknown name is a TypeError."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]
