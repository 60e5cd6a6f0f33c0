"""Whatever a YAML file holds, its reader returns soon or says in one line what is wrong; values are those of PyYAML."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.config import compose
from runner.errors import ConfigError, DamagedRun, DataError
from runner.home import CONF, REPOSITORY
from runner.options.yaml_files import NotYaml, parsed, read
from runner.report.spec.grids import load_grid
from runner.runs.__main__ import main as runs
from runner.training.files import read_yaml
from runner.training.run_records import check_run, read_settings

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
WRONG: dict[str, tuple[str | bytes, str]] = {
    "aliases of aliases": (BOMB, "more than 100,000 values, aliases written out"),
    "merged aliases": (BOMB + "b:\n  <<: {q: *a11}\n", "more than 100,000 values"),
    "holds itself": ("a: &a [*a]\n", "line 1: the alias *a has no value before it, or holds itself"),
    "unknown alias": ("a: 1\nb: *c\n", "line 2: the alias *c has no value before it"),
    "deep lists": ("a: " + "[" * 100_000, "line 1: nested more than 100 deep"),
    "deep mappings": ("{a: " * 100_000, "nested more than 100 deep"),
    "deep blocks": ("- " * 100_000 + "1", "nested more than 100 deep"),
    "no UTF-8": (b"a: gr\xf6\xdfe\n", "not UTF-8; save it as UTF-8"),
    "UTF-16": ("a: 1\n".encode("utf-16"), "not UTF-8"),
    "a zero byte": ("a: \0\n", "not YAML"),
    "5,000 digits": ("a: " + "9" * 5000 + "\n", "not YAML"),
    "impossible date": ("a: 2020-13-45\n", "not YAML"),
    "a mapping as key": ("{{a: 1}: 2}\n", "not YAML"),
    "a tag": ("a: !!python/object/apply:os.system [ls]\n", "not YAML"),
    "unbalanced": ("a: [1\n", "not YAML"),
    "a list": ("- 1\n", "expected a mapping of keys"),
    "empty": ("", "expected a mapping of keys"),
}  # fmt: skip


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    return str(error)


@pytest.mark.parametrize("name", WRONG)
def test_a_file_of_conf(name: str, tmp_path: Path) -> None:
    content, says = WRONG[name]
    file = tmp_path / "a.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    began = time.perf_counter()
    with pytest.raises(ConfigError) as caught:
        read(file)
    assert time.perf_counter() - began < 20, "it does not hang"
    assert one_line(caught.value).startswith(f"{file}: ")
    assert says in str(caught.value)
    with pytest.raises(DamagedRun) as damaged:
        read_yaml(file)
    assert str(damaged.value).startswith(f"{file} is damaged: it is ")


@pytest.mark.parametrize("name", WRONG)
def test_a_grid_of_conf(name: str, tmp_path: Path) -> None:
    content, says = WRONG[name]
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "mine.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load_grid("mine", tmp_path)
    assert says in one_line(caught.value)


def test_aliases_are_allowed_in_moderation(tmp_path: Path) -> None:
    text = "a: &a {x: [1, 2]}\nb: *a\nc:\n  <<: *a\n  y: 3\nd: &s word\ne: *s\n"
    (tmp_path / "a.yaml").write_text(text)
    assert read(tmp_path / "a.yaml") == yaml.safe_load(text) | {"c": {"x": [1, 2], "y": 3}}


def test_files_of_this_project_are_read_as_by_pyyaml() -> None:
    for file in [*CONF.rglob("*.yaml"), *(REPOSITORY / "datasets").glob("*/card.yaml")]:
        text = file.read_text()
        assert parsed(text) == yaml.safe_load(text), file


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


@given(value=VALUES)
def test_values_come_back(value: Any) -> None:
    assert parsed(yaml.safe_dump(value), aliases=False) == value


@settings(max_examples=300)
@given(text=st.lists(st.sampled_from([
    "a: ", "b", "- ", "[", "]", "{", "}", ", ", "\n", "  ", "&a ", "*a", "<<: ", "? ", ": ", "!!int ", "'", '"', "|\n",
    "#", "1e5", "2020-13-01", "%", "@", "---\n", "...\n", "\t", "~", "9" * 50, "é", "\x07", "0x", "1:2:3", ".inf",
]), max_size=14).map("".join))  # fmt: skip
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed(text)
    except NotYaml as error:
        one_line(error)


def finished_run(place: Path) -> Path:
    from test_fuzzed_files import finished

    config = compose(["sampler=uniform"])
    folder = place / "runs" / config.run_id
    folder.mkdir(parents=True)
    finished(folder)
    return folder


@pytest.mark.parametrize("name", [name for name in WRONG if name not in ("a list", "empty")])
def test_the_settings_of_a_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole settings with something before them: what a reader would believe that only looks at known keys."""
    folder = finished_run(tmp_path)
    content, _ = WRONG[name]
    data = content if isinstance(content, bytes) else content.encode()
    settings_of_run = (folder / "config.yaml").read_bytes()
    (folder / "config.yaml").write_bytes(data + settings_of_run if data.endswith(b"\n") else data)
    for read_it in (check_run, read_settings):
        with pytest.raises(DamagedRun) as caught:
            read_it(folder)
        assert one_line(caught.value).startswith(f"{folder}/config.yaml is damaged: ")
    assert runs(["list", "--results-dir", str(tmp_path)]) == 0
    assert "damaged: " in capsys.readouterr().out


@pytest.mark.parametrize("name", WRONG)
def test_a_card(name: str, tmp_path: Path) -> None:
    from runner.data.shared.cards import read_card

    content, _ = WRONG[name]
    (tmp_path / "card.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as caught:
        read_card(tmp_path / "card.yaml")
    one_line(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["no UTF-8", "unbalanced", "empty", "a list"])
def test_an_option_of_ones_own(name: str, tmp_path: Path) -> None:
    """Hydra reads files of conf/dataset; what it says of a wrong one is one line too."""
    shutil.copytree(CONF, tmp_path / "conf")
    content, _ = WRONG[name]
    (tmp_path / "conf/dataset/mine.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    code = (
        "import sys; from pathlib import Path; from runner import config;"
        "config.CONF = Path(sys.argv[1]); config.compose(['dataset=mine'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "conf")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("runner.errors.")
