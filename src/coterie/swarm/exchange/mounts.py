"""Whether a path is on a network's file system, where SQLite's WAL is not safe."""

from pathlib import Path

NETWORKS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs"}


def mounts() -> str:
    """The text of /proc/self/mounts (proc(5)); empty where there is none."""
    table = Path("/proc/self/mounts")
    return table.read_text(errors="replace") if table.exists() else ""


def network_file_system(path: Path, mounts: str) -> str | None:
    """The type of the file system that `path` is on when it is a network's, by the text that `mounts` gives."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            point = Path(fields[1].encode().decode("unicode_escape"))
            if path.resolve().is_relative_to(point) and len(point.parts) >= best:
                best, kind = len(point.parts), fields[2]
    return kind if kind in NETWORKS else None
