"""A file system of a few MiB for a test: ext4 on a loop device where we may, else a tmpfs, else a tmpfs in a
namespace of our own (the test starts itself again in it)."""

import os
import subprocess
import sys
import tempfile

SKIPPED = 77  # ctest: SKIP_RETURN_CODE


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


class SmallDisk:
    def __init__(self, mib):
        self.directory = tempfile.mkdtemp(prefix="narad-disk-")
        self.image = os.path.join(self.directory, "image")
        self.path = os.path.join(self.directory, "mount")
        self.ballast = os.path.join(self.path, "ballast")
        os.mkdir(self.path)
        with open(self.image, "wb") as file:
            file.truncate(mib << 20)
        self.kind = "ext4"
        made = run("mkfs.ext4", "-q", "-m", "0", "-J", "size=4", self.image)
        if not (made and run("mount", "-o", "loop", self.image, self.path)):
            self.kind = "tmpfs"
            if not run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", self.path):
                self.kind = None

    def free(self):
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def fill(self, leave=0):
        """Somebody else's bytes, until `leave` bytes are free."""
        with open(self.ballast, "ab") as file:
            step = 1 << 20
            while step >= 4096:
                if self.free() < leave + step:
                    step //= 2
                    continue
                try:
                    os.posix_fallocate(file.fileno(), file.tell(), step)
                    file.seek(0, os.SEEK_END)
                except OSError:
                    step //= 2

    def empty(self):
        os.unlink(self.ballast)

    def close(self):
        if self.kind is not None:
            run("umount", self.path) or run("umount", "-l", self.path)
        os.rmdir(self.path)
        os.unlink(self.image)
        os.rmdir(self.directory)


def require():
    """Go on where such a file system can be had; end the test as skipped where it cannot."""
    disk = SmallDisk(8)
    kind = disk.kind
    disk.close()
    if kind is not None:
        return
    if "NARAD_TEST_NAMESPACE" in os.environ or not run("unshare", "-Urm", "true"):
        print("skipped: no small file system may be mounted here")
        sys.exit(SKIPPED)
    os.environ["NARAD_TEST_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "-Urm", sys.executable, *sys.argv])
