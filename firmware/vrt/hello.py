# Our hello (vRT §5.2), once for each connection, and forgotten again.
from vrt import VERSION, once


def hello(app, resumed):
    config, name = app.config, app.board.NAME
    made = {
        "device": {"id": config["id"] or name, "board": name, "firmware": VERSION},
        "limits": {
            "messageBytes": config["message_bytes"],
            "audioBytes": config["message_bytes"],
            "queuedCalls": app.tools.queue_limit,
            "bufferMs": config["buffer_ms"],
        },
    }
    if app.crash and app.crash.text:
        made["device"]["crash"] = app.crash.text
    if config["token"]:
        made["auth"] = {"token": config["token"]}
    if not resumed:
        made.update(app.sound.prefer)
        if app.conversation.stream:
            made["capabilities"] = ["tool-stream-v1"]  # type: ignore  (values of several types)
        made["tools"] = once("vrt.tools.shelf").get(app.tools)
        made["context"] = app.tools.context()
    return made
