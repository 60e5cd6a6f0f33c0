"""A run that needs more memory than there is, is refused in one line with the numbers before anything is allocated."""

import resource
from pathlib import Path

import pytest

from runner.bench import language_step
from runner.bench.settings import LanguageStep
from runner.config import compose, register_failure
from runner.errors import ConfigError
from runner.machine import memory
from runner.training import needs
from runner.training.needs import check_memory
from runner.training.run import run

NUMBER = 10**12
TOO_MUCH = [
    (["sampler=uniform", f"sampler.num_samples={NUMBER}"], "sampler.num_samples=1000000000000"),
    (["sampler=uniform", f"sampler.num_samples={NUMBER}", "sampler.unique=false"], "candidates of a step"),
    (["sampler=uniform", f"sampler.num_samples={NUMBER}", "sampler.shared=false"], "candidates of a step"),
    (["sampler=unigram", f"sampler.num_samples={10**30}"], "candidates of a step"),
    (["sampler=log_uniform", f"sampler.num_samples={NUMBER}"], "candidates of a step"),
    (["sampler=midx_pq", f"sampler.num_samples={NUMBER}"], "candidates of a step"),
    (["sampler=rff", f"sampler.num_samples={NUMBER}"], "candidates of a step"),
    (["sampler=quadratic", f"sampler.num_samples={NUMBER}"], "candidates of a step"),
    (["sampler=lsh", f"sampler.num_samples={NUMBER}"], "candidates of a step"),
    ([f"sampler.num_tail={NUMBER}"], "sampler.num_tail=1000000000000"),
]


@pytest.mark.parametrize(("words", "says"), TOO_MUCH, ids=[" ".join(words)[:50] for words, _ in TOO_MUCH])
def test_too_many_candidates(words: list[str], says: str, toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> None:
    refused(["dataset=xmc", f"dataset.path={toy_folder}", *words], says, tmp_path)


@pytest.mark.parametrize(("header", "says"), [
    (f"2 60 {2**31 - 1}", "the vectors of 2,147,483,647 classes"),
    (f"2 {2**31 - 1} 50", "the input rows of 2,147,483,647 features"),
])  # fmt: skip
def test_large_headers(header: str, says: str, own_data_dir: Path, tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.txt").write_text(f"{header}\n1 1:1\n2,3 4:1\n")
    refused(["dataset=xmc", f"dataset.path={tmp_path}", "sampler=uniform", "model.hidden=4096"], says, tmp_path)


def refused(words: list[str], says: str, place: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        run(compose([f"results_dir={place}/results", "hardware.threads=1", *words]))
    said = str(caught.value)
    assert said.startswith("this run needs at least ")
    assert says in said
    assert "GiB are free" in said
    assert "\n" not in said
    assert list((place / "results" / "runs").iterdir()) == []


def test_more_rows_to_evaluate_than_there_are(toy_folder: Path, own_data_dir: Path, tmp_path: Path) -> None:
    """They are all of them: nothing is allocated for the number."""
    words = ["dataset=xmc", f"dataset.path={toy_folder}", f"results_dir={tmp_path}", f"evaluation.rows={10**30}"]
    from runner.parts import task_of

    config = compose(words)
    assert len(task_of(config, config.dataset.build()).subset) == 60  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", [["model.hidden=1000000000"], ["model=linear", "model.hidden=1000000000"]])
def test_model_sizes_have_limits(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"model\.hidden must lie in \[1, 4096\]"):
        compose(words)


def test_a_text_of_too_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_step, "available_bytes", lambda: 2.0**30)
    with pytest.raises(ConfigError, match=r"texts=1000000000: .* takes 22\.4 GiB, but 1\.0 GiB are free"):
        language_step.open_text(1_000_000_000, LanguageStep())


def test_ordinary_runs_are_not_refused(toy_folder: Path, own_data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower bounds stay below what runs of small sets take."""
    monkeypatch.setattr("runner.training.needs.available_bytes", lambda: 2.0**20)
    config = compose(["dataset=xmc", f"dataset.path={toy_folder}", "sampler=uniform", "sampler.num_samples=1000"])
    check_memory(config, config.dataset.build())


def test_the_limit_of_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2**30, 2**30))
    monkeypatch.setattr(memory, "_status_mb", lambda name: 256.0)
    assert memory.available_bytes() == 0.75 * 2**30
    monkeypatch.setattr(memory, "_status_mb", lambda name: 2048.0)
    assert memory.available_bytes() == 0


@pytest.mark.parametrize(("line", "files", "free"), [
    ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "1000", "a/memory.current": "700",
                 "a/memory.stat": "anon 1\ninactive_file 200\n"}, 500),
    ("0::/", {"memory.max": "1000", "memory.current": "900", "memory.stat": ""}, 100),
    ("0::/gone", {}, float("inf")),
    ("4:cpu,memory:/a", {"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "100",
                         "memory/a/memory.stat": "total_inactive_file 50\n"}, 950),
    ("4:cpu:/a", {"memory.max": "1"}, float("inf")),
    ("nonsense", {}, float("inf")),
])  # fmt: skip
def test_control_groups_count(line: str, files: dict[str, str], free: float, tmp_path: Path) -> None:
    (tmp_path / "membership").write_text(line + "\n")
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    assert memory._of_control_groups(tmp_path / "groups", tmp_path / "membership") == free


def test_memory_that_runs_out_later_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from runner import config

    register_failure(MemoryError("Unable to allocate 7.28 TiB for an array"))
    try:
        assert config.exit_code() == 2
    finally:
        config.forget_failures()
    assert capsys.readouterr().err.splitlines() == [
        "error: the memory does not suffice (Unable to allocate 7.28 TiB for an array); choose a smaller model, batch"
        " or number of candidates"
    ]


def test_a_gpu_has_a_memory_of_its_own(toy_folder: Path, own_data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose(["dataset=xmc", f"dataset.path={toy_folder}", "hardware=gpu"])
    data = config.dataset.build()
    monkeypatch.setattr(needs, "gpu_bytes", lambda: 10**12)
    check_memory(config, data)
    monkeypatch.setattr(needs, "gpu_bytes", lambda: 1000)
    with pytest.raises(ConfigError, match=r"of the GPU's memory, but 0\.0 GiB are free"):
        check_memory(config, data)


def test_gradients_of_own_candidates_count_on_a_device(toy_folder: Path, own_data_dir: Path) -> None:
    """They have a place for each candidate, up to the number of classes; shared ones, or the CPU's, have none."""
    words = ["dataset=xmc", f"dataset.path={toy_folder}", "model.hidden=16", "batch_size=4", "sampler=uniform"]

    def gradients(*more: str) -> int:
        config = compose([*words, *more])
        found = needs.needed_bytes(config, needs.Sizes(classes=10**6, features=100, rows=1000))
        return sum(size for what, size in found.items() if what.startswith("the gradients of the candidates"))

    own = ["sampler.shared=false", "sampler.num_samples=30"]
    assert gradients(*own, "hardware.engine=torch") == 4 * 30 * 16 * 4
    assert gradients(*own[:1], "hardware.engine=torch", "sampler.num_samples=1000000") == (10**6 + 1) * 16 * 4
    assert gradients(*own) == gradients("hardware.engine=torch") == 0
