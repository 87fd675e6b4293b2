"""Limits what some processes read from a disk, by the kernel's block I/O controller (needs root).

The controller's version 2 (io.max) where the root has it, else version 1. The limit is on the whole
disk that a folder lies on; only the processes that were added feel it.
"""

import contextlib
import os
import pathlib
import time

V1 = pathlib.Path("/sys/fs/cgroup/blkio")
V2 = pathlib.Path("/sys/fs/cgroup")


class Unavailable(Exception):
    pass


def disk_of(folder):
    """MAJOR:MINOR of the disk, not of a partition of it."""
    device = os.stat(folder).st_dev
    path = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not path.exists():
        raise Unavailable(f"{folder} lies on no block device")
    if (path / "partition").exists():
        path = path.resolve().parent
    return (path / "dev").read_text().strip()


class ReadThrottle:
    made = 0

    def __init__(self, folder):
        self.disk = disk_of(folder)
        controllers = V2 / "cgroup.controllers"
        try:
            if controllers.exists() and "io" in controllers.read_text().split():
                (V2 / "cgroup.subtree_control").write_text("+io")
                self.group, self.file, self.form = V2, "io.max", "{disk} rbps={rate}"
            elif (V1 / "blkio.throttle.read_bps_device").exists():
                self.group, self.file, self.form = V1, "blkio.throttle.read_bps_device", \
                    "{disk} {rate}"
            else:
                raise Unavailable("the kernel's block I/O controller is not mounted")
            self.group = self.group / f"spillway-bench-{os.getpid()}-{ReadThrottle.made}"
            ReadThrottle.made += 1
            self.group.mkdir()
        except OSError as error:
            raise Unavailable(f"no control group can be made: {error}") from error

    def add(self, pid):
        (self.group / "cgroup.procs").write_text(str(pid))

    def set(self, bytes_per_s):
        (self.group / self.file).write_text(self.form.format(disk=self.disk, rate=bytes_per_s))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Its processes have ended."""
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.group.rmdir()
                return
            time.sleep(0.1)
        print(f"{self.group} could not be removed")
