"""The SDK's types as a judge of frames, made strict: by the class for a frame's `type`, and nothing beyond its members."""

import typing

import pydantic

_EXTRA = {"session.id", "session.object", "session.expires_at", "obfuscation"}
"""What the servers really send beyond the SDK's types (in recorded sessions)."""


def classes(union):
    """`type` -> the class, of an annotated union of events."""
    members = typing.get_args(typing.get_args(union)[0])
    return {name: one for one in members for name in typing.get_args(one.model_fields["type"].annotation)}


def wrong(frame, known):
    """What is wrong with a frame, None: nothing."""
    kind = known.get(frame.get("type"))
    if kind is None:
        return f"the type {frame.get('type')!r} is not known"
    try:
        event = kind.model_validate(frame)
    except pydantic.ValidationError as error:
        return str(error)
    extra = [path for path in _extra(event, "") if path not in _EXTRA]
    return f"{frame['type']} has the unknown {', '.join(extra)}" if extra else None


def _extra(value, path):
    if isinstance(value, pydantic.BaseModel):
        for name in value.model_extra or ():
            yield f"{path}{name}"
        for name in type(value).model_fields:
            yield from _extra(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list):
        for one in value:
            yield from _extra(one, path)
