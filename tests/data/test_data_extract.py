"""Malicious archives are refused, and harmless ones are unpacked."""

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from runner.data.shared.extract import extract
from runner.errors import DataError


def make_zip(path: Path, *members: tuple[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            file.writestr(info, data)
    return path


def make_tar(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member in members:
            file.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


def test_good_archives(tmp_path: Path) -> None:
    extract(make_zip(tmp_path / "a.zip", ("Set/", b""), ("Set/train.txt", b"abc")), tmp_path / "a")
    assert (tmp_path / "a/Set/train.txt").read_bytes() == b"abc"
    folders = [member(".", tarfile.DIRTYPE), member("./Set", tarfile.DIRTYPE)]
    extract(make_tar(tmp_path / "b.tar.gz", *folders, member("./Set/test.txt", size=3)), tmp_path / "b")
    assert (tmp_path / "b/Set/test.txt").read_bytes() == b"xxx"


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "a/../../evil", "..\\evil", "C:\\evil", "a/..", "../"])
def test_paths_that_leave_the_folder(tmp_path: Path, name: str) -> None:
    makers = [make_zip(tmp_path / "a.zip", ("fine.txt", b"x"), (name, b"x"))]
    makers.append(make_tar(tmp_path / "a.tar.gz", member("fine.txt", size=1), member(name, size=1)))
    for archive in makers:
        target = tmp_path / "deep" / "out"
        with pytest.raises(DataError, match="refused"):
            extract(archive, target)
        assert not target.exists()
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar(tmp_path: Path, kind: bytes) -> None:
    archive = make_tar(tmp_path / "a.tar.gz", member("x", kind, link="/etc/passwd"))
    with pytest.raises(DataError, match="link or device"):
        extract(archive, tmp_path / "out")


def test_links_in_zip(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", ("x", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777)
    with pytest.raises(DataError, match="link or device"):
        extract(archive, tmp_path / "out")


def test_bombs_duplicates_and_damage(tmp_path: Path) -> None:
    bomb = make_zip(tmp_path / "bomb.zip", ("zeros", bytes(3 << 20)))
    with pytest.raises(DataError, match="more than the allowed size"):
        extract(bomb, tmp_path / "out", most_bytes=1 << 20)
    with pytest.raises(DataError, match="failed"):
        extract(make_tar(tmp_path / "twice.tar.gz", member("x", size=1), member("x", size=2)), tmp_path / "out")
    for name, data in (("cut.zip", bomb.read_bytes()[:-100]), ("junk.tar.gz", b"junk"), ("junk.zip", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match="damaged"):
            extract(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()
