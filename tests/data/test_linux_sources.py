"""Sets made of the Linux kernel's sources: any version, from an archive that is read as a stream."""

import io
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from runner.data import CardConfig, TextDataset, XmcDataset
from runner.data.rows.linux_calls import words
from runner.data.rows.vectorize import read_vectorizer
from runner.data.shared import extract
from runner.data.shared.places import raw_dir
from runner.data.shared.prepare import prepare_card
from runner.data.text.linux_code import split_of, words_of_code
from runner.errors import DataError

MAKEFILE = "# SPDX\nVERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 7\nEXTRAVERSION = -rc2\nNAME = Hurr\n"
DRIVER = """#include <linux/usbPort.h>
static void start_{n}(struct usb_port *port)
{{
	if (port->isReady && MAX_PORTS > 0x10)
		wake_up(port, "no()");
	only_here_{n}(port);
	{other}(port);
}}
"""
FILES = {
    "Makefile": MAKEFILE,
    "lib/z.c": "int in_z(int a)\n{\n\twake_up(a);\n}\n",
    "drivers/usb/port.c": "".join(DRIVER.format(n=n, other=("halt", "reset")[n % 2]) for n in range(30)),
    "include/empty.h": "#define EMPTY(x) no(x)\n",
    "include/inline.h": "static inline int quiet(void) { return 0; }\n",
    "scripts/tool.py": "def f(): no()\n",
}


def archive(folder: Path, name: str = "linux-6.1.7.tar.xz", files: dict[str, str] | None = None) -> Path:
    """Write an archive as kernel.org makes them: one folder, which holds a link, too."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with tarfile.open(path, "w:xz") as tar:
        for member, content in (FILES if files is None else files).items():
            data = content.encode()
            info = tarfile.TarInfo(f"linux-6.1.7/{member}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("linux-6.1.7/scripts/link.c")
        link.type, link.linkname = tarfile.SYMTYPE, "../lib/z.c"
        tar.addfile(link)
    return path


def test_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive(tmp_path)
    manifest = prepare_card("linux_calls", given=tmp_path)
    assert manifest.variant == "linux-6.1.7-rc2"
    dataset = CardConfig(name="linux_calls").build()
    assert isinstance(dataset, XmcDataset)
    assert dataset.label_names() is not None
    assert sorted(dataset.label_names() or []) == ["halt", "reset", "wake_up"], "names that two functions call"
    assert (dataset.label_names() or [])[0] == "wake_up", "classes are sorted by frequency"
    # 30 drivers and in_z have a label, quiet has none; one row in ten of 32 is for testing.
    assert dataset.train.num_rows + dataset.test.num_rows == 31
    assert dataset.test.num_rows + dataset.test.rows_dropped == 3
    assert dataset.vectorizer_path is not None
    features = read_vectorizer(dataset.vectorizer_path).terms
    assert features == ("drivers", "is", "max", "port", "ports", "ready", "start", "usb"), "of four rows, no calls"
    sizes = np.diff(dataset.train.label_indptr)
    assert set(sizes) <= {1, 2}
    assert "the card expects" in capsys.readouterr().err


def test_calls_do_not_depend_on_the_order_of_the_archive(tmp_path: Path) -> None:
    archive(tmp_path / "a")
    archive(tmp_path / "b", files=dict(sorted(FILES.items(), reverse=True)))
    first = prepare_card("linux_calls", given=tmp_path / "a")
    second = prepare_card("linux_calls", given=tmp_path / "b", force=True)
    assert first.checksum == second.checksum
    assert first.sources != second.sources


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kmalloc_array", "kmalloc array"),
        ("isReady", "is ready"),
        ("HTTPServer_v2", "http server v2"),
        ("__raw_writeB2Fast", "raw write b2 fast"),
        ("drivers/net/e1000/e1000_main", "drivers net e1000 e1000 main"),
        ("_", ""),
    ],
)
def test_words_of_a_name(name: str, text: str) -> None:
    assert words(name) == text


def test_words_of_code() -> None:
    source = b"""#include <linux/list.h>
#  define CAT(a, b) a ## b /* no */ \\
   + 0x1fUL
int f(char *s) // no
{ s->n <<= 1.5e3 - .5; a[i<n>>1] = "a \\" b"[0] != '\\''; return x...; }"""
    assert b" ".join(words_of_code(source)).decode() == (
        "#include <linux/list.h> #define CAT ( a , b ) a ## b + 0 int f ( char * s )"
        """ { s -> n <<= 0 - 0 ; a [ i < n >> 0 ] = "" [ 0 ] != '' ; return x ... ; }"""
    )


def test_code(tmp_path: Path) -> None:
    files = {f"lib/file{n}.c": f"int f{n}(void)\n{{\n\tdo_it({n});\n}}\n" for n in range(300)}
    archive(tmp_path, files={**files, "Makefile": MAKEFILE, "lib/x.h": "int header(void);\n", "lib/empty.c": "/**/\n"})
    manifest = prepare_card("linux_code", given=tmp_path)
    assert manifest.variant == "linux-6.1.7-rc2"
    dataset = CardConfig(name="linux_code").build()
    assert isinstance(dataset, TextDataset)
    wanted = {"int", "void", "do_it", "0", "(", ")", "{", "}", ";", "<eos>", "<unk>"}
    assert set(dataset.vocabulary) == wanted, "names that only one file has are unknown"
    splits = {"train": dataset.train_T, "valid": dataset.valid_T, "test": dataset.test_T}
    ends = {split: int(np.count_nonzero(ids_T == dataset.ids["<eos>"])) for split, ids_T in splits.items()}
    assert sum(ends.values()) == 300, "each file that has code ends once, and whole"
    for split, number in ends.items():
        assert number == sum(split_of(path) == split for path in files)
        assert number > 5
    assert ends["train"] > 230


def test_debians_name_is_taken_and_its_checksum_compared(tmp_path: Path) -> None:
    archive(tmp_path / "a", "linux_6.1.7.orig.tar.xz")
    archive(tmp_path / "a", "linux_6.1.7-1.debian.tar.xz")
    assert prepare_card("linux_calls", given=tmp_path / "a").variant == "debian-linux-6.1.7-rc2"
    path = archive(tmp_path / "b", "linux_6.1.176.orig.tar.xz")
    with pytest.raises(DataError, match=f"{path}: wrong sha256: expected 9aad4025"):
        prepare_card("linux_calls", given=tmp_path / "b", force=True)


def test_a_downloaded_archive_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    archive(raw_dir("linux_calls"), "linux-6.1.176.tar.xz")
    monkeypatch.setattr(extract, "MOST_MEMBERS", 1)
    assert prepare_card("linux_calls").variant == "linux-6.1.7-rc2"


@pytest.mark.parametrize("name", ["linux_calls", "linux_code"])
@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_cut_archive_is_refused(tmp_path: Path, name: str, kept: float) -> None:
    path = archive(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(DataError) as caught:
        prepare_card(name, given=tmp_path)
    assert str(caught.value).startswith(f"{path}: damaged archive (")
    assert "\n" not in str(caught.value)


def test_a_changed_archive_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"{path}: damaged archive "):
        prepare_card("linux_calls", given=tmp_path)


@pytest.mark.parametrize("name", ["linux_calls", "linux_code"])
@pytest.mark.parametrize(
    "files",
    [
        {},
        {"src/main.c": "int main(void) { run(); }\n", "Makefile": "all:\n\tcc src/main.c\n"},
        {"lib/Makefile": MAKEFILE, "a.c": "int f(void) { g(); }"},
    ],
    ids=["empty", "another program", "a Makefile elsewhere"],
)
def test_an_archive_of_something_else_is_refused(tmp_path: Path, name: str, files: dict[str, str]) -> None:
    path = archive(tmp_path, files=files)
    with pytest.raises(DataError) as caught:
        prepare_card(name, given=tmp_path)
    assert str(caught.value) == f"{path}: no Makefile names a version of Linux; is this another archive?"


@pytest.mark.parametrize("name", ["linux_calls", "linux_code"])
def test_a_kernel_without_code_is_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path, files={"Makefile": MAKEFILE})
    with pytest.raises(DataError) as caught:
        prepare_card(name, given=tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_xz_of_no_tar_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "linux-6.1.tar.xz"
    path.write_bytes(lzma.compress(b"int f(void) { g(); }\n" * 1000))
    with pytest.raises(DataError, match=f"{path}: damaged archive "):
        prepare_card("linux_calls", given=tmp_path)


@pytest.mark.parametrize("first", ["linux-6.1.7.tar.xz", "linux-6.1.176.tar.xz"])
def test_two_archives_are_told_apart_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    archive(tmp_path, first)
    archive(tmp_path, "linux-6.2.tar.xz")
    monkeypatch.setattr(extract, "MOST_MEMBERS", 1)
    with pytest.raises(DataError, match=r"wanted one file linux-\*\.tar\.xz or one file linux_\*\.orig\.tar\.xz"):
        prepare_card("linux_calls", given=tmp_path)


def test_a_huge_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path)
    monkeypatch.setattr(extract, "MOST_BYTES_AT_ONCE", 100)
    with pytest.raises(DataError, match=f"{path}: member '.*' has .* bytes; refused"):
        prepare_card("linux_calls", given=tmp_path)
