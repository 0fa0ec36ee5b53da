"""Faults of a node's device, injected from outside: the other side of tests/support/faults.c."""

import errno
import mmap
import os
import struct
import tempfile

PWRITE, FDATASYNC, FSYNC, SYNCFS, SUBMIT = 1, 2, 4, 8, 16
SIZE = 256
PATH_AT, PATH_SIZE = 24, 232


class Faults:
    """A control page. `env` goes into the environment of the node."""

    def __init__(self):
        handle, self.name = tempfile.mkstemp(prefix="narad-faults-")
        os.ftruncate(handle, SIZE)
        self.page = mmap.mmap(handle, SIZE)
        os.close(handle)
        self.env = {"LD_PRELOAD": os.environ["ND_FAULTS_LIBRARY"], "ND_FAULTS": self.name}
        # AddressSanitizer wants to be first; being second does no harm here.
        self.env["ASAN_OPTIONS"] = ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"),
                                                          "verify_asan_link_order=0")))

    def close(self):
        self.page.close()
        os.unlink(self.name)

    def arm(self, calls, path="", nth=1, error=errno.EIO, sticky=False):
        """Fail the nth of `calls` on files whose path has `path` in it; all later ones too if sticky. Error 0: they hang
        until this is disarmed."""
        self.disarm()
        self.page[PATH_AT:SIZE] = path.encode().ljust(PATH_SIZE, b"\0")
        struct.pack_into("=IIIiI", self.page, 4, 0, nth, calls, error, int(sticky))
        struct.pack_into("=I", self.page, 0, 1)

    def disarm(self):
        struct.pack_into("=I", self.page, 0, 0)

    def left(self):
        """What is left of `nth`."""
        return struct.unpack_from("=I", self.page, 8)[0]

    def fired(self):
        return struct.unpack_from("=I", self.page, 4)[0]
