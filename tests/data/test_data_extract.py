"""Malicious archives are refused, and harmless ones are unpacked."""

import bz2
import gzip
import io
import lzma
import random
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


FILES = {"Set/train.txt": b"2 3 4\n0,3 0:1 2:0.25\n1 1:2\n" * 40, "Set/test.txt": b"1 3 4\n2 1:2\n"}
PACKERS = {
    ".tar": bytes,
    ".tar.gz": gzip.compress,
    ".tgz": gzip.compress,
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
}


def packed(suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == ".zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in FILES.items():
                file.writestr(name, data)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return PACKERS[suffix](buffer.getvalue())


def unpacked(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("suffix", [*PACKERS, ".zip"])
def test_changed_bytes_are_noticed(suffix: str, tmp_path: Path) -> None:
    """Any changed byte is an error in one line, or changes nothing that is unpacked (times, owners, padding)."""
    whole, draw = packed(suffix), random.Random(0)
    archive = tmp_path / f"a{suffix}"
    archive.write_bytes(whole)
    extract(archive, tmp_path / "whole")
    assert unpacked(tmp_path / "whole") == FILES
    # A plain tar has checksums of the headers of members alone, and is verified by the sums of its card.
    places = [*range(512), *range(512 + 1536, 1024 + 1536)] if suffix == ".tar" else range(len(whole))
    for turn, place in enumerate(draw.sample(places, min(len(places), 250))):
        changed = bytearray(whole)
        changed[place] ^= 1 << draw.randrange(8)
        archive.write_bytes(changed)
        try:
            extract(archive, tmp_path / str(turn))
        except DataError as error:
            said = str(error)
        else:
            said = f"{archive}: "
            assert unpacked(tmp_path / str(turn)) == FILES, place
        assert said.startswith(f"{archive}: ")
        assert "\n" not in said


@pytest.mark.parametrize("suffix", [*PACKERS, ".zip"])
def test_cut_archives_are_noticed(suffix: str, tmp_path: Path) -> None:
    whole = packed(suffix)
    archive = tmp_path / f"a{suffix}"
    end = 512 + 1536 + 512 + 512 if suffix == ".tar" else len(whole)  # behind them are only blocks of zeros
    for size in {0, 1, 5, 20, 600, 2048, end // 2, end - 500, end - 9, end - 1, end} - {len(whole)}:
        if 0 <= size <= end:
            archive.write_bytes(whole[:size])
            with pytest.raises(DataError, match="damaged archive"):
                extract(archive, tmp_path / "out")


def test_a_digit_in_a_tar_that_is_compressed(tmp_path: Path) -> None:
    """The change keeps the stream of deflate valid, as one of stored blocks does; only the checksum tells."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=0) as file:
        file.write(packed(".tar"))
    stored = buffer.getvalue()
    assert stored.count(b"2:0.25") == 40
    (tmp_path / "a.tar.gz").write_bytes(stored.replace(b"2:0.25", b"2:0.35", 1))
    with pytest.raises(DataError, match=r"damaged archive.*CRC check failed"):
        extract(tmp_path / "a.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_members_behind_a_header_of_zeros(tmp_path: Path) -> None:
    whole = bytearray(packed(".tar"))
    whole[2048:2560] = bytes(512)
    (tmp_path / "a.tar").write_bytes(whole)
    with pytest.raises(DataError, match="something follows the mark of its end"):
        extract(tmp_path / "a.tar", tmp_path / "out")
