# Updates for tests: bundles as `vrt update sign` makes them, signed with a key that is here for everybody to read.
import json
from hashlib import sha256

from vrt.setup import update

KEY = (
    "d465d9ab8f498ca8a19eb18e2d3bd79a98d05bf3eedfa74ed43e37c990937c191ce55250aa0bd473a9264c82a0492f10"
    "8f45472dd3a7377ae020007d01e331d0be2d6c1bf8ce3bd9f63671b4a53b4c5ad6d4acc110cfb910585cd4b57e56f42d"
    "745f39e6891e14d31251255bf81e3a12e5ad3c3271cafb480bce39270299ddca333a96d98a453dab7fd4e1031c3fbcc4"
    "8c33da4361eea1f3725e3d8dd4a399c970b303a0a4d19ec831a351c1ae309f14180257cf1c42a8fab16046ea86e89602"
    "ce50ea10bfbad7b2cfcbe550d5061b8a7488ab0c9238d36171f6a666683b7f4d21a5d48861255a17cbdd514aa860d2ad"
    "0543a08c67fbeeaf987713fb11569599"
)
_PRIVATE = (
    "1599ba16597f285fe9f7e2a4cbf2df0d68e71fc2e2133ac7a88c1f4e4f76c053297e24edf12d3cd0fa6ddbb0192ef82b"
    "5df6b4b37367f91b74f9ac330a6319a8d9fe729531ab7fa8be027173e6adee28fada2c2b82532dc5fcc68c175d1ee8bc"
    "4aae788bfa7be5b045979d0e0a60c095356875cbc788d61f509c0b71ed30cabe5b19dde73aa748b8020a5d1d1c518576"
    "6e6ed221fba98ad88d15f0ad8832e676252db477bfdbf0d212f7d2ef348173a2f2b4f4e10ceb73c78002e9b30bc21753"
    "fb09def78209fc8d8d1652328eace0d3881f5bb88981b7642df9fee5b2d2966eb152983ac198e28e271cfccb677a9f77"
    "a14dfd99c2031b4c0ed43205a1467555"
)


def sign(manifest):
    digest = update._DIGEST_INFO + sha256(update.MAGIC + manifest).digest()
    encoded = b"\x00\x01" + b"\xff" * (253 - len(digest)) + b"\x00" + digest
    number = pow(int.from_bytes(encoded, "big"), int(_PRIVATE, 16), int(KEY, 16))
    return number.to_bytes(256, "big")


def bundle(files, board="sim", version="9.0.0", mpy=0, change=None):
    # files: {path: content}. change: what the manifest says instead.
    listed = []
    for path in sorted(files):
        listed.append(
            [path, len(files[path]), "".join([f"{byte:02x}" for byte in sha256(files[path]).digest()])]
        )
    said = {"board": board, "version": version, "mpy": mpy, "files": listed}
    said.update(change or {})
    manifest = json.dumps(said).encode()
    content = b"".join([files[path] for path in sorted(files)])
    return update.MAGIC + sign(manifest) + len(manifest).to_bytes(4, "big") + manifest + content
