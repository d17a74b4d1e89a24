"""A file system of its own in a loop file, whose power can be cut."""
import os
import shutil
import subprocess

import pytest

from harness import PATIENCE_S


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)


class Disk:
    """ext4 in a file; at: where it is mounted."""

    def __init__(self, folder, megabytes=96, image=None):
        self.image, self.at = os.path.join(folder, "image"), os.path.join(folder, "mount")
        os.makedirs(self.at)
        try:
            if image:
                run("cp", "--sparse=always", image, self.image)
            else:
                with open(self.image, "wb") as f:
                    f.truncate(megabytes << 20)
                run("mkfs.ext4", "-q", "-F", "-m", "0", self.image)
            run("mount", "-o", "loop", self.image, self.at)
        except (OSError, subprocess.CalledProcessError) as e:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.skip(f"needs root, ext4 and loop devices: {e}")
        self.state = os.path.join(self.at, "state")

    def done(self):
        subprocess.run(["umount", "-l", self.at], check=False, capture_output=True, timeout=PATIENCE_S)
