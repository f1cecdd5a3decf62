# Figures for the log, now and then.
import gc


def tell(app):
    session = app.session
    made = of(app.sound)
    made.update(missing=session.missing, discarded=session.discarded, gaps=session.streams.gaps)
    made.update(invalid=session.invalid, too_large=app.link.dropped)
    if hasattr(gc, "mem_free"):
        made.update(heap_used=gc.mem_alloc(), heap_free=gc.mem_free())
    if app.wifi:
        made.update(idf_block=app.wifi.block())
    app.log.event("stats", **made)


def of(sound):
    mic, speaker = sound.mic, sound.speaker
    made = {"sent": sound.sent}
    if mic:
        made.update(mic_dropped=mic.dropped, mic_overruns=mic.overruns, mic_stalls=mic.stalls)
    if speaker:
        made.update(received=speaker.frames, speaker_dropped=speaker.dropped)
        made.update(underruns=speaker.underruns, speaker_stalls=speaker.stalls)
    return made
