"""What an Omnia facade says in a turn, as events of the port: text, sound, and what can be neither shown nor played."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vrt_host.agents.base import Audio, AudioBegin, AudioEnd, Text, Transcript, TurnEnd
from vrt_host.agents.omnia_messages import Done, Media, MediaChunk, SessionConfig
from vrt_host.agents.omnia_sound import OUTPUT, Stream
from vrt_host.agents.omnia_turn import Outlet, Turn

log = logging.getLogger(__name__)

_MEDIA = 4
"""Media of an answer that may be under way at once, and types that are told as unplayable."""


class Mouth:
    """Speaks for one answer at a time."""

    def __init__(self, outlet: Outlet, rate: int | None) -> None:
        """`rate`: the sample rate of audio that comes without one; None: the session's."""
        self._outlet = outlet
        self._fixed = rate
        self._rate = rate or OUTPUT.sample_rate
        self._streams: dict[str, Stream] = {}
        self._unplayable: set[str] = set()
        self._items = 0

    def configure(self, config: SessionConfig) -> None:
        """The audio session has this format."""
        self._rate = self._fixed or config.sample_rate

    def forget(self) -> None:
        """What comes next begins streams of its own."""
        self._streams.clear()

    def write(self, turn: Turn, text: str) -> None:
        """Words: to be read where the user typed, else what is spoken."""
        turn.wrote = True
        if turn.typed:
            self._outlet.say(Text(turn.key, text))
        else:
            self._outlet.say(Transcript(turn.key, "agent", text, final=False, item=turn.item))

    def media(self, turn: Turn, chunk: MediaChunk) -> None:
        """A piece of a medium."""
        stream = self._streams.setdefault(chunk.media_id, Stream())
        if len(self._streams) > _MEDIA:
            del self._streams[next(iter(self._streams))]
        self._sound(turn, stream, stream.order(chunk))
        if chunk.last:
            self._sound(turn, stream, stream.rest())
            self.end_item(turn)
            self._streams.pop(chunk.media_id, None)

    def _sound(self, turn: Turn, stream: Stream, chunks: Sequence[MediaChunk]) -> None:
        for chunk in chunks:
            sound = stream.sound(chunk, self._rate)
            if sound is None:
                self._cannot_play(chunk.mime_type)
            elif sound:
                self._play(turn, chunk.media_id, sound)

    def complete(self, turn: Turn, said: str | None, done: Done) -> None:
        """The final message of an answer of which `said` came in chunks (None: that is not known any more): the rest, and media."""
        for stream in self._streams.values():
            self._sound(turn, stream, stream.rest())
        rest = "" if said is None else _rest(said, done.text or "")
        if rest:
            self.write(turn, rest)
        for media in done.media:
            self._part(turn, media)

    def _part(self, turn: Turn, media: Media) -> None:
        """Played if it can be, else told."""
        if media.data is not None:
            stream = Stream()
            sound = stream.sound(MediaChunk("", None, True, media.data, media.mime_type), self._rate)
            if sound is not None:
                self._play(turn, "part", sound + stream.end())
                self.end_item(turn)
                return
        where = f": {media.where}" if media.where else ""
        name = f" {media.name}" if media.name else ""
        self.write(turn, f"\n({media.kind}{name}, {media.mime_type}{where})")

    def _cannot_play(self, mime_type: str) -> None:
        if mime_type not in self._unplayable and len(self._unplayable) < _MEDIA:
            self._unplayable.add(mime_type)
            log.warning("omnia: media of the type %.60r cannot be played here; they are left out", mime_type)

    def _play(self, turn: Turn, media: str, sound: bytes) -> None:
        if turn.item is not None and turn.media != media:
            self.end_item(turn)
        if turn.item is None:
            self._items += 1
            turn.item, turn.media = f"item-{self._items}", media
            self._outlet.say(AudioBegin(turn.key, turn.item))
        self._outlet.say(Audio(turn.key, turn.item, sound))

    def end_item(self, turn: Turn) -> None:
        """The sound ends."""
        item, turn.item = turn.item, None
        if item is None:
            return
        stream = self._streams.get(turn.media)
        if stream is not None and (rest := stream.end()):
            self._outlet.say(Audio(turn.key, item, rest))
        self._outlet.say(AudioEnd(turn.key, item))

    def end(self, turn: Turn) -> None:
        """The turn ends."""
        self.end_item(turn)
        if turn.ended:
            return
        turn.ended = True
        if turn.wrote and turn.typed:
            self._outlet.say(Text(turn.key, "", final=True))
        elif turn.wrote:
            self._outlet.say(Transcript(turn.key, "agent", "", final=True))
        self._outlet.say(TurnEnd(turn.key))


def _rest(said: str, whole: str) -> str:
    """What the final text has beyond the chunks before it, whatever the spaces in them. Where they differ, what was said stands."""
    at = 0
    for char in "".join(said.split()):
        while whole[at : at + 1].isspace():
            at += 1
        if whole[at : at + 1] != char:
            log.debug("omnia: the final text is not what came in chunks; it is left out")
            return ""
        at += 1
    rest = whole[at:]
    return "" if rest.isspace() else rest.lstrip() if said[-1:].isspace() else rest
