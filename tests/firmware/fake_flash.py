# Flash for modules that use open() and os: texts by path.
import os
import sys


class Flash:
    # A file system in memory for one module; the power is cut in the midst of the nth change.
    def __init__(self, module, files, cut=-1):
        self.module = module
        self.files = dict(files)
        self.left = cut

    def open(self, path, mode="r"):
        if mode == "r":
            if path not in self.files:
                raise OSError(2, "ENOENT")
            return Reading(self.files[path])
        self.tick()
        self.files[path] = ""
        return Writing(self, path)

    def rename(self, old, new):
        self.tick()
        self.files[new] = self.files.pop(old)

    def stat(self, path):
        if path not in self.files:
            raise OSError(2, "ENOENT")

    def tick(self):
        if self.left == 0:
            raise Cut
        self.left -= 1

    def __enter__(self):
        self.module.open, self.module.os = self.open, self
        sys.modules[self.module.__name__] = self.module  # the firmware may have forgotten it
        return self

    def __exit__(self, *error):
        del self.module.open
        self.module.os = os


class Cut(Exception):
    pass


class Reading:
    def __init__(self, text):
        self.text = text

    def read(self, n=-1):
        text, self.text = self.text if n < 0 else self.text[:n], "" if n < 0 else self.text[n:]
        return text

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Writing(Reading):
    def __init__(self, flash, path):
        self.flash = flash
        self.path = path

    def write(self, text):
        for character in text:
            self.flash.tick()
            self.flash.files[self.path] += character
