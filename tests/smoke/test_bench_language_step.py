"""scripts/bench.py language_step runs on a few classes, and its reports compute correctly; no time is asserted."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from test_bench import cells, load_front

from runner.bench import language_step, machine, methods
from runner.bench.language_step import Repetition
from runner.bench.output_layer import add_times_full
from runner.bench.settings import LanguageStep
from runner.config import compose
from runner.contracts import TrainingFacts
from runner.machine.clock import STAGES, StageClock
from runner.report.pages.bench_tables import document
from runner.report.spec.tables import load_bench, words_of
from runner.structures.refresh_schedule import RefreshSchedule

TINY = ("batch_size=2", "windows.length=4", "model.hidden=8", "model.embedding=8", "model.layers=1")
SMALL = ["threads=1", "repetitions=2", "steps=2"]
LSH_SOFTMAX = load_bench("lsh_softmax_table2_speed").settings
FACTS = TrainingFacts(label_counts_N=np.ones(40, dtype=np.int64), num_rows=40, steps_per_epoch=30)

Bench = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture(scope="module")
def front() -> ModuleType:
    return load_front()


@pytest.fixture
def bench(front: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run the subcommand; return the JSON and the Markdown that it wrote."""
    monkeypatch.setattr(machine, "_last_level_cache", lambda: 0)
    monkeypatch.setattr(machine, "_SMALLEST_ARRAY", 2**16)
    monkeypatch.setattr(machine, "_SQUARE", 64)
    monkeypatch.setattr(language_step, "_SETTLING", 3)

    def run(*arguments: str, overrides: Sequence[str] = TINY) -> tuple[dict[str, Any], str]:
        path = tmp_path / "new" / "report.json"
        words = words_of({"overrides": [*overrides]})
        assert front.main(["language_step", "--json", str(path), *SMALL, *words, *arguments]) == 0
        return json.loads(path.read_text()), path.with_suffix(".md").read_text()

    return run


def plan(**settings: Any) -> LanguageStep:
    usual = {"draws": 5, "repetitions": 2, "steps": 2, "schedule_steps": 100}
    return LanguageStep(**{**usual, "overrides": TINY, **settings})


# ---------------------------------------------------------------- reports


def test_every_method_composes() -> None:
    text = language_step.open_text(60, plan())
    for preset, names in (
        ("midx_lm_full", methods.DEFAULT_LANGUAGE_METHODS),
        ("lsh_softmax_lm_full", LSH_SOFTMAX["methods"]),
    ):
        for name in names:
            config = language_step.configuration(name, text, plan(preset=preset))
            draws = getattr(config.sampler, "num_samples", None)
            assert draws == {"ns": 60, "uniform_shared": 1000}.get(name, draws and 5), "ns: no more than classes"
    assert set(methods.DEFAULT_LANGUAGE_METHODS) | set(LSH_SOFTMAX["methods"]) == set(methods.LANGUAGE_METHODS)


@pytest.mark.slow
def test_a_report(bench: Bench) -> None:
    names = ["full", "uniform", "lsh", "rff", "midx_rq"]
    report, text = bench("texts=300,40", f"methods={','.join(names)}", "draws=6")
    assert report["texts"] == [300, 40]
    assert [size["classes"] for size in report["sizes"]] == [300, 40]
    for size in report["sizes"]:
        assert size["update_holds_encoder"]
        assert not size["one_by_one"]
        assert [row["method"] for row in size["results"]] == names
        for row in size["results"]:
            assert row["status"] == "measured"
            assert row["step_ms"]["lowest"] <= row["step_ms"]["median"] <= row["step_ms"]["highest"]
            assert 0 < row["softmax_ms"]["median"] < row["step_ms"]["median"]
            assert set(row["stages_ms"]) == set(STAGES)
            assert row["steps_timed"] == 4
            assert row["tokens_per_second"] == pytest.approx(8000 / row["step_ms"]["median"])
            assert row["candidates_per_row"] == (size["classes"] if row["method"] == "full" else 6)
            assert (row["refresh"] is None) == (row["method"] in ("full", "uniform"))
        assert size["results"][0]["times_full"] == size["results"][0]["softmax_times_full"] == 1
        refreshes = {row["method"]: row["refresh"] for row in size["results"] if row["refresh"]}
        assert all(refresh["ms"]["median"] > 0 for refresh in refreshes.values()), "one in each repetition"
        assert refreshes["rff"]["steps"] == pytest.approx(10)
        assert refreshes["midx_rq"]["steps"] == pytest.approx(125_000), "once an epoch"
        assert refreshes["lsh"]["steps"] > 50
    for name in names:
        assert len(cells(text, name)) == 2 * 2, "two tables a text"
    assert "## 300 classes" in text
    assert "Update, and with it the softmax layer, holds the encoder's updates" in text
    assert "lsh (K=4, L=16," in text
    assert "refresh_every_steps=50, refresh_growth=1.1" in text, "the method's own schedule, not the measurement's"
    assert all(note in text for note in report["notes"])
    assert "{" not in text


@pytest.mark.parametrize("preset", ["lsh_softmax_lm_full", "midx_lm_full"])
@pytest.mark.parametrize("clip", ["null", "0.5"])
def test_torchs_full_softmax_is_the_same_training(preset: str, clip: str) -> None:
    small = ("model.hidden=8", "model.embedding=8", "batch_size=3", "windows.length=4", f"training.clip={clip}")
    some = plan(preset=preset, overrides=small)
    text = language_step.open_text(60, some)
    config = language_step.configuration("full", text, some)
    task = language_step.LanguageModelling(config, text.data)
    losses = {}
    for name, head_of in (("ours", language_step.ClassesHead.of), ("torch's", language_step.torch_full_head)):
        head = head_of(config, task.training)
        network = language_step.Network.of(config, head, num_features=task.num_features)
        losses[name] = [
            network.train_step(batch, step, StageClock()).loss
            for step, batch in enumerate(language_step.batches_of(task, 12), start=1)
        ]
    assert losses["torch's"] == pytest.approx(losses["ours"], rel=1e-4)


@pytest.mark.slow
def test_a_figure_of_stages(bench: Bench, tmp_path: Path) -> None:
    report, _ = bench("texts=40", "methods=full,uniform")
    files = sorted(file.name for file in (tmp_path / "new").iterdir())
    assert files == ["report.json", "report.md", "report.png", "report.svg"]
    drawn = (tmp_path / "new" / "report.svg").read_text()
    assert all(f"<!-- {word} -->" in drawn for word in (*STAGES, "Full softmax", "Uniform", "40 classes"))
    report["sizes"][0]["text"] = "ptb"
    picture = language_step.draw(report, tmp_path / "named")
    assert picture is not None
    assert "<!-- Penn Treebank, 40 classes -->" in picture.with_suffix(".svg").read_text()
    report["sizes"][0]["results"] = [{"method": "full", "status": "skipped: needs 9 GB, 1 GB free"}]
    assert language_step.draw(report, tmp_path / "nothing") is None


@pytest.mark.slow
def test_a_prepared_text(bench: Bench, write_text: Callable[..., None], tmp_path: Path, own_data_dir: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    write_text(folder, lines={"train": 40, "valid": 5, "test": 5})
    report, text = bench("texts=text", "methods=full", f"dataset.path={folder}")
    (size,) = report["sizes"]
    assert size["data_checksum"]
    assert f"## text, {size['classes']} classes" in text
    report["texts"].append("ptb")
    assert "Text ptb: not measured, the run ended before." in document(report).notes


@pytest.mark.slow
def test_lsh_softmax_table_stands_beside_its_printed_speedups(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert language_step.published_speedups("billion_word") == {"ns": 5.7, "lsh_topk": 4.1}
    assert all(language_step.published_speedups(text) for text in language_step.LSH_SOFTMAX_TEXTS.values())
    assert set(LSH_SOFTMAX["texts"]) == language_step.LSH_SOFTMAX_TEXTS.keys()
    monkeypatch.setattr(language_step, "LSH_SOFTMAX_TEXTS", {400: "ptb", 1_000_000_000: "billion_word"})
    words = words_of({key: LSH_SOFTMAX[key] for key in ("methods", "preset", "draws", "published")})
    small = ["model.hidden=8", "model.embedding=8"]
    report, text = bench("texts=400", *words, overrides=[*LSH_SOFTMAX["overrides"], *small])
    assert "draws" not in text.splitlines()[2]
    (size,) = report["sizes"]
    assert not size["update_holds_encoder"]
    assert size["batch"] == [1, 1]
    rows = {row["method"]: row for row in size["results"]}
    assert list(rows) == ["full", "torch_full", "ns", "lsh_topk", "lsh_topk_uncentred", "lsh_topk_lazy"]
    assert all(row["status"] == "measured" for row in rows.values())
    assert rows["ns"]["candidates_per_row"] == 220
    assert rows["ns"]["settings"]["num_samples"] == 220
    assert rows["lsh_topk"]["refresh"]["steps"] == 1
    assert rows["lsh_topk_lazy"]["refresh"]["steps"] > 50
    head, *_ = cells(text, "method")
    place = head.index("times full, published (ptb)")
    published = {name: cells(text, name)[0][place] for name in rows}
    assert published == {
        "full": "",
        "torch_full": "",
        "ns": "2.8",
        "lsh_topk": "1.6",
        "lsh_topk_uncentred": "",
        "lsh_topk_lazy": "",
    }


# ---------------------------------------------------------------- memory and order


@pytest.mark.slow
def test_what_does_not_fit_together_is_measured_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    text, some = language_step.open_text(40, plan()), plan()
    needs = {
        name: language_step.network_bytes(language_step.configuration(name, text, some), 40)
        for name in ("full", "uniform", "midx_rq")
    }
    assert needs["full"] > max(needs["uniform"], needs["midx_rq"])
    building = language_step.building_bytes(language_step.configuration("full", text, some), 40)
    most = needs["full"] + building - 1
    monkeypatch.setattr(language_step, "shortage", lambda needed: f"skipped: {needed}" if needed > most else None)
    report, markdown = bench("texts=40", f"methods={','.join(needs)}")
    (size,) = report["sizes"]
    full, *others = size["results"]
    assert size["one_by_one"]
    assert "Measured one method after the other" in markdown
    assert full["status"] == f"skipped: {needs['full'] + building}"
    assert cells(markdown, "full")[0][1] == full["status"]
    assert [row["status"] for row in others] == ["measured", "measured"]
    assert [row["times_full"] for row in others] == [None, None], "there is no full softmax to compare with"


def test_gradients_of_every_class_count_where_they_are_kept() -> None:
    sizes = {"model.hidden": 8, "model.embedding": 6, "model.tied": "false", "model.init": 0.1}
    untied = [f"{key}={value}" for key, value in sizes.items()]

    def columns(*settings: str) -> float:
        config = compose(["preset=midx_lm_full", *untied, "optimizer=adam", "sampler=full", *settings])
        return (language_step.network_bytes(config, 1000) - 64 * 1000) / 4000

    assert columns() == 3 * 14
    assert columns("training.clip=1") == 3 * 14 + 8
    assert columns("optimizer=sgd", "optimizer.lr=1") == 14 + 8
    assert columns("sampler=uniform", "optimizer=sgd", "optimizer.lr=1") == 14


def test_repetitions_take_turns_on_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, bytes]] = []
    monkeypatch.setattr(language_step, "_SETTLING", 1)
    monkeypatch.setattr(
        language_step._Entrant,
        "repetition",
        lambda self, batches: order.append((self.name, b"".join(batch.tokens_BT.tobytes() for batch in batches))),
    )
    monkeypatch.setattr(language_step._Entrant, "summary", lambda self: {})
    thrice = plan(repetitions=3)
    text = language_step.open_text(60, thrice)
    configs = {name: language_step.configuration(name, text, thrice) for name in ("full", "uniform", "unigram")}
    task = language_step.LanguageModelling(configs["full"], text.data)
    language_step._measure(configs, task, thrice, "60 classes")
    names = [name for name, _ in order]
    assert names == ["full", "uniform", "unigram", "uniform", "unigram", "full", "unigram", "full", "uniform"]
    seen = {name: [tokens for other, tokens in order if other == name] for name in configs}
    assert seen["full"] == seen["uniform"] == seen["unigram"]
    assert len(set(seen["full"])) == 3


def test_long_repetitions_have_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    many = plan(steps=50)
    text = language_step.open_text(60, many)
    config = language_step.configuration("uniform", text, many)
    task = language_step.LanguageModelling(config, text.data)
    batches = language_step.batches_of(task, 60)
    monkeypatch.setattr(language_step, "_LONGEST", 0.0)
    entrant = language_step._Entrant("uniform", config, task, many)
    entrant.settle(batches)
    assert entrant.step == 3
    entrant.repetition(batches)
    assert entrant.summary()["steps_timed"] == 3


def test_batches_go_on_after_an_epoch() -> None:
    text = language_step.open_text(60, plan())
    short = language_step.Text(name="60", data=language_step.zipf_text(60, 41), chosen=[])
    task = language_step.LanguageModelling(language_step.configuration("full", text, plan()), short.data)
    assert task.training.steps_per_epoch == 5
    assert len(language_step.batches_of(task, 12)) == 12


def test_zipf_texts() -> None:
    tokens = language_step.zipf_text(1000, 200_000).train_T
    counts = np.bincount(tokens, minlength=1000)
    assert len(counts) == 1000
    share = 1 / np.arange(1, 1001) / (1 / np.arange(1, 1001)).sum()
    assert counts[:3] == pytest.approx(200_000 * share[:3], rel=0.05)
    assert np.array_equal(tokens, language_step.zipf_text(1000, 200_000).train_T)


# ---------------------------------------------------------------- arithmetic


def test_refreshes_are_as_many_as_the_schedule_has() -> None:
    schedules = {
        name: language_step.refresh_schedule(compose([f"sampler={name}"]).sampler, FACTS)
        for name in ("full", "uniform", "lsh", "rff", "midx_pq")
    }
    found = {name: schedule and (schedule.period, schedule.growth) for name, schedule in schedules.items()}
    assert found == {"full": None, "uniform": None, "lsh": (50, 1.1), "rff": (1, 1.0), "midx_pq": (30, 1.0)}
    assert language_step.refreshes_a_step(None, 100) == 0
    assert language_step.refreshes_a_step(RefreshSchedule(30), 100) == 1 / 30
    assert language_step.refreshes_a_step(RefreshSchedule(10, 2.0), 100) == 0.03, "after 10, 30 and 70 steps"
    assert language_step.refreshes_a_step(RefreshSchedule(200, 2.0), 100) == 0


def test_a_repetition_has_a_refresh() -> None:
    def within(*settings: str) -> Any:
        return language_step.refreshed_within(compose([*settings]).sampler, FACTS, 20)

    lsh, midx = within("sampler=lsh"), within("sampler=midx_pq")
    assert (lsh.refresh_every_steps, lsh.refresh_growth, midx.refresh_every_steps) == (20, 1.0, 20)
    assert within("sampler=rff", "sampler.refresh_every_steps=7").refresh_every_steps == 7
    assert within("sampler=uniform") == compose(["sampler=uniform"]).sampler


def test_refreshes_are_spread_over_the_steps_of_their_schedule() -> None:
    clock = StageClock()
    clock.seconds.update({"encode": 0.4, "update": 0.2, "refresh": 0.12})
    clock.total = 0.76
    observed = Repetition(steps=4, clock=clock, due=[0.03, 0.07])
    stages = observed.stages_ms(0.1, usual_refresh=9.0)
    assert stages["encode"] == pytest.approx(100)
    assert stages["refresh"] == pytest.approx(1000 * (0.02 / 4 + 0.05 * 0.1)), "notes, and a tenth of a refresh"
    assert observed.step_ms(0.1, 9.0) == pytest.approx(1000 * 0.64 / 4 + 10)
    without = Repetition(steps=4, clock=clock, due=[])
    assert without.stages_ms(0.1, usual_refresh=0.5)["refresh"] == pytest.approx(1000 * (0.03 + 0.05))


def test_times_full_are_of_the_fastest_full_softmax() -> None:
    rows = [
        {"method": name, "status": "measured", "step_ms": ms}
        for name, ms in (("full", 8.0), ("full_bf16", 6.0), ("uniform", 2.0))
    ]
    skipped = {"method": "exact", "status": "skipped: needs 9 GB, 1 GB free"}
    add_times_full([*rows, skipped], "faster", lambda row: row["step_ms"])
    assert [row["faster"] for row in rows] == [0.75, 1, 3]
    assert "faster" not in skipped


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["texts=ptbb"], "unknown option 'dataset=ptbb'; did you mean 'ptb'?"),
        (["texts=ptb"], "ptb is not prepared: run `python scripts/prepare_dataset.py ptb`"),
        (["texts=delicious"], "dataset=delicious holds rows, but model=lstm reads text"),
        (["texts=3"], "texts must be at least 16, got 3"),
        (["texts=40", "preset=smoke"], "preset=smoke: its model reads no text"),
        (["texts=40", "preset=midx"], "unknown option 'preset=midx'"),
        (["texts=40", "steps=0"], "steps must be at least 1"),
        (["texts=40", "sampler.kk=1"], "unknown key"),
        (["texts=40", *words_of({"overrides": TINY}), "optimizer.lr=1e38"], "the loss became"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, front: ModuleType, tmp_path: Path, own_data_dir: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(language_step, "limits_before_and_after", lambda work: (work(), None, {}))
    path = tmp_path / "report.json"
    options = ["--json", str(path), "threads=1", "methods=full"]
    with np.errstate(all="ignore"):
        assert front.main(["language_step", *options, *arguments]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert not path.exists()
