"""Every subcommand of scripts/bench.py runs on a few classes, and reports compute correctly; no time is asserted."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from runner.bench import machine, methods, output_layer, sampling
from runner.bench.arithmetic import Spread, amortised_refresh, least_work
from runner.bench.contenders import RunnerMethod, configuration
from runner.bench.methods import DEFAULT_METHODS
from runner.bench.settings import OutputLayer, Rows
from runner.bench.tensorflow_baseline import TENSORFLOW, TensorFlowFull, TensorFlowSampled, is_installed
from runner.bench.torch_baselines import TorchFull, TorchSampled, block_rows
from runner.bench.workload import Workload
from runner.config import CONF
from runner.contracts import Query
from runner.kernels.products import HAS_BF16
from runner.kernels.target import target
from runner.machine import company
from runner.machine.clock import StageClock
from runner.optimizers import AdamConfig
from runner.report.pages.bench_tables import document, growth
from runner.report.pages.layout import to_markdown
from runner.report.spec.tables import load_bench
from runner.structures.refresh_schedule import RefreshSchedule

SMALL = ["threads=1", "repetitions=1", "model.hidden=16"]
STEPS = ["batch=32", "steps=2"]

Bench = Callable[..., tuple[dict[str, Any], str]]


def load_front() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("bench", CONF.parent / "scripts" / "bench.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def front() -> ModuleType:
    return load_front()


@pytest.fixture
def bench(front: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run a subcommand; return the JSON and the Markdown that it wrote."""
    monkeypatch.setattr(machine, "_last_level_cache", lambda: 0)
    monkeypatch.setattr(machine, "_SMALLEST_ARRAY", 2**16)
    monkeypatch.setattr(machine, "_SQUARE", 64)

    def run(*arguments: str) -> tuple[dict[str, Any], str]:
        path = tmp_path / "new" / "report.json"
        assert front.main([arguments[0], "--json", str(path), *SMALL, *arguments[1:]]) == 0
        assert sorted(file.name for file in path.parent.iterdir()) == ["report.json", "report.md"]
        return json.loads(path.read_text()), path.with_suffix(".md").read_text()

    return run


def cells(text: str, first: str) -> list[list[str]]:
    """Return the cells of the Markdown table rows whose first column is ``first``."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in rows if row[0] == first]


# ---------------------------------------------------------------- subcommands


@pytest.mark.slow
def test_output_layer(bench: Bench) -> None:
    expected = {} if is_installed() else dict.fromkeys(TENSORFLOW, "skipped: not installed")
    if not HAS_BF16:
        expected |= dict.fromkeys(("full_bf16", "full_bf16_stored"), "skipped: needs AVX512_BF16")
    report, text = bench("output_layer", "classes=2000,300", *STEPS)
    assert report["classes"] == [2000, 300]
    assert report["provenance"]["threads"] == 1
    assert set(report["provenance"]) >= {"commit", "patch", "cpu", "versions", "command"}
    for size in report["sizes"]:
        assert len(size["load_average"]) == len(size["bandwidth_gb_s"]) == 2
        assert [row["method"] for row in size["results"]] == list(DEFAULT_METHODS)
        lacking = {row["method"]: row["status"] for row in size["results"] if row["status"] != "measured"}
        assert lacking == expected
        for row in size["results"]:
            if row["method"] in lacking:
                continue
            step, refresh = row["step_s_per_1k_rows"], row["refresh"]
            assert step["lowest"] <= step["median"] <= step["highest"]
            assert (refresh is not None) == row["method"].startswith("lsh")
            assert row["s_per_1k_rows"] == step["median"] + (refresh["s_per_1k_rows"] if refresh else 0)
            assert 1 <= row["class_rows_per_step"] <= size["classes"]
            assert set(row["stages_s_per_1k_rows"]) == {"sample", "score", "loss", "update"}
            assert (row["limits"] is None) == row["method"].startswith(("torch", "tensorflow"))
    full = [row for row in report["sizes"][0]["results"] if row["method"] in set(methods.FULL_METHODS) - set(expected)]
    assert max(row["times_full"] for row in full) == 1
    for method in DEFAULT_METHODS:
        tables = 1 if method in expected else 2  # what was not measured has no stages
        assert len(cells(text, method)) == 2 * tables + 1  # of two sizes, and the growth with n
    assert "## 2,000 classes" in text
    assert "300 classes | 2,000 classes" in text
    assert all(note in text for note in report["notes"])


@pytest.mark.slow
def test_rows(bench: Bench) -> None:
    report, text = bench("rows", "classes=2000", "method=lsh_label", *STEPS)
    results = report["sizes"][0]["results"]
    assert [row["method"] for row in results] == ["touched", "catch_up", "dense"]
    assert results[0]["times_touched"] == 1
    reads = {row["method"]: row["limits"]["score"]["least_mb"] / row["class_rows_per_step"] for row in results}
    assert reads["catch_up"] == pytest.approx(3 * reads["touched"])
    assert results[2]["limits"]["score"]["least_mb"] == pytest.approx(2000 * 17 * 4 * 6 / 1e6)
    assert "method lsh_label" in text
    assert len(cells(text, "dense")) == 1


def test_dense_is_not_tried_where_it_would_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.bench import rows

    monkeypatch.setattr(rows, "_MOST_CLASSES_DENSE", 10)
    monkeypatch.setattr(rows, "measure", lambda *_: None)
    monkeypatch.setattr(rows.Entrant, "summary", lambda *_: {"step_s_per_1k_rows": {"median": 1.0}})
    monkeypatch.setattr(rows, "limits_before_and_after", lambda work: (work(), None, {}))
    plan = Rows(method="uniform", batch=4, overrides=("model.hidden=8", "sampler.num_samples=5"))
    part = rows.one_size(20, plan)
    assert part["results"][2]["status"].startswith("skipped: moves every row")


@pytest.mark.slow
def test_refresh(bench: Bench) -> None:
    report, text = bench("refresh", "classes=2000")
    results = report["sizes"][0]["results"]
    assert [row["share"] for row in results] == [1.0, 0.01, 0.1, 0.5] * 2
    for row in results:
        assert row["rehashed_rows"] == pytest.approx(2000 * row["share"], abs=100)
        assert row["seconds"]["lowest"] > 0
    assert [row[1] for row in cells(text, "simhash K=9 L=50")] == ["all", "1%", "10%", "50%"]
    assert len(cells(text, "dwta K=4 L=50")) == 4


@pytest.mark.slow
def test_sampling(front: ModuleType, bench: Bench, tmp_path: Path) -> None:
    report, text = bench("sampling", "classes=400", "batch=8", "draws=5", "dim=8")
    (size,) = report["sizes"]
    assert [row["method"] for row in size["results"]] == list(methods.DEFAULT_SAMPLERS)
    for row in size["results"]:
        assert row["status"] == "measured"
        assert (row["candidates"] == 5) == (row["method"] != "lsh_topk")
        assert 0 < row["draw_ms"]["median"] < row["loss_ms"]["highest"]
        assert row["build_seconds"] > 0
        assert row["settings"]["name"] == {"sphere": "quadratic"}.get(row["method"], row["method"])
    assert "codewords=64" in text
    report["sizes"] = [{**size, "classes": classes} for classes in (100, 200, 400)]
    picture = sampling.draw(report, tmp_path / "times")
    assert picture is not None
    assert picture.stat().st_size > 10_000
    figure = picture.with_suffix(".svg").read_text()
    assert "<!-- MIDX-rq -->" in figure
    assert all(f"<!-- {line} -->" in figure for line in ("ms to draw 5 classes", "for each of 8 rows"))
    assert "<!-- LSH Softmax -->" not in figure, "another number of candidates"


@pytest.mark.slow
def test_rf_softmax_table_stands_beside_its_printed_numbers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampling._published_ms(500_000)["rff_D1000"] == 2.4
    monkeypatch.setattr(sampling, "_published_ms", lambda classes: {"exp": 1.5})
    methods = load_bench("rf_softmax_table2").settings["methods"]
    words = [f"methods={','.join(methods)}", "published=true", "output.normalize=true", "model.hidden=64"]
    report, text = bench("sampling", "classes=300", "batch=10", "draws=10", *words)
    assert report["classes"] == [300]
    assert "output.normalize=true" in report["overrides"]
    assert [row["method"] for row in report["sizes"][0]["results"]] == methods
    assert cells(text, "exact")[0][-1] == "1.5"
    assert cells(text, "rff_D50")[0][-1] == ""


def test_too_large_a_method_is_a_status(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_layer, "bytes_needed", lambda *_: 1e15)
    report, text = bench("output_layer", "classes=64", "methods=uniform,torch_full", *STEPS)
    uniform, full = report["sizes"][0]["results"]
    assert uniform["times_full"] is None
    assert full["status"].startswith("skipped: needs 1000000.0 GB, ")
    assert "s_per_1k_rows" not in full
    assert cells(text, "torch_full")[0][1] == full["status"]


def test_a_method_that_the_processor_can_not_run_is_a_status(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.samplers.full._has_bf16", lambda: False)
    report, text = bench("output_layer", "classes=64", "methods=full_bf16,full", *STEPS)
    bf16, full = report["sizes"][0]["results"]
    assert bf16 == {"method": "full_bf16", "status": "skipped: needs AVX512_BF16"}
    assert full["times_full"] == 1
    assert cells(text, "full_bf16")[0][1] == bf16["status"]
    assert report["provenance"]["compiled_for"]["kernels"] == target().description
    assert target().description in text
    report, _ = bench("rows", "classes=64", "method=full_bf16", *STEPS)
    assert {row["status"] for row in report["sizes"][0]["results"]} == {"skipped: needs AVX512_BF16"}


def test_kernels_of_too_many_images(front: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["kernels", "images=1798"]) == 2
    assert capsys.readouterr().err == "error: images must be at most 1797, got 1798\n"


def test_reading_a_log(front: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    assert front.main(["read_log", "events=100,1000", "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    assert report["seconds"] > 0
    small, large = report["sizes"]
    assert (small["events"], small["kept"], small["users"] <= 10, small["items"]) == (100, 100, True, 1)
    assert (large["events"], large["kept"], large["users"] <= 100, large["items"]) == (1000, 1000, True, 10)
    assert small["cpu_seconds"] > 0
    assert 50 < small["peak_mb"] < 5000
    assert "## 1,000 events" in path.with_suffix(".md").read_text()
    assert front.main(["read_log", "events=1", "--json", str(path)]) == 2
    assert "events must be at least 100" in capsys.readouterr().err


@pytest.mark.parametrize(("cores", "load", "warned"), [(0.0, 9.0, False), (1.5, 0.0, True), (None, 9.0, True)])
def test_noise_is_what_others_do_now(
    cores: float | None, load: float, warned: bool, front: ModuleType, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The load average still counts what has ended, such as runs that a plan made before it measures."""
    monkeypatch.setattr(company.Company, "cores", lambda _: cores)
    monkeypatch.setattr(front.os, "getloadavg", lambda: (load, load, load))
    assert front.main(["read_log", "events=1"]) == 2
    assert ("timings will be noisy" in capsys.readouterr().err) == warned


def test_mistakes_are_one_line(front: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for wrong, says in (
        (["steps=0"], "steps must be at least 1"), (["classes=3"], "classes must be at least 16"),
        (["sampler.kk=1"], "unknown key 'sampler.kk'"), (["methods=fulll"], "methods: unknown 'fulll'; did you mean"),
        (["batches=3"], "unknown key 'batches'; did you mean 'batch'?"), (["batch"], "give KEY=VALUE with a setting"),
        (["classes=[3"], "the value cannot be read"), (["classes=[]"], "classes: give at least one"),
    ):  # fmt: skip
        assert front.main(["output_layer", "--json", str(path), *wrong]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ")
        assert says in error
    assert not path.exists()


def test_an_interrupted_run_keeps_the_sizes_it_finished(
    front: ModuleType, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = output_layer.one_size

    def interrupted(num_classes: int, asked: OutputLayer) -> dict[str, Any]:
        if num_classes == 65:
            raise KeyboardInterrupt
        return whole(num_classes, asked)

    monkeypatch.setattr(output_layer, "one_size", interrupted)
    path = tmp_path / "report.json"
    options = ["--json", str(path), *SMALL, "classes=64,65", "methods=uniform", *STEPS]
    assert front.main(["output_layer", *options]) == 130
    report = json.loads(path.read_text())
    assert [size["classes"] for size in report["sizes"]] == [64]
    assert "seconds" not in report, "which says that everything was measured"
    assert "65 classes: not measured" in path.with_suffix(".md").read_text()


# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    ("period", "growth", "steps"), [(50, 1.1, 1000), (50, 1.0, 1000), (7, 1.3, 200), (500, 2, 499)]
)
def test_refreshes_are_counted_as_the_sampler_does_them(period: int, growth: float, steps: int) -> None:
    schedule = [f"sampler.refresh_every_steps={period}", f"sampler.refresh_growth={growth}"]
    config = configuration("lsh_label", ["model.hidden=8", "sampler.K=2", "sampler.L=2", *schedule])
    workload = Workload(config.optimizer, num_classes=40, dim=8)
    sampler: Any = RunnerMethod("lsh_label", config, workload.table, workload.label_counts_N).sampler
    sampler.rebuild = lambda step: None
    (query,) = workload.queries(1, 4, seed=0)
    done = sum(sampler.refresh(query, step, np.zeros(0, np.int32)) for step in range(1, steps + 1))
    assert RefreshSchedule(period, growth).times_within(steps) == done


def test_amortised_refresh() -> None:
    # 10 refreshes of 0.5 s over 1,000 steps of 100 rows: 5 s over 100,000 rows.
    assert amortised_refresh(0.5, 10, steps=1000, batch=100) == pytest.approx(0.05)


def test_spread() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(median=2.0, lowest=1.0, highest=3.0)


@pytest.mark.parametrize(
    ("rows", "everything", "score_bytes", "update_bytes"),
    [
        ("touched", False, 10 * 516, 10 * 516 * 6),
        ("catch_up", False, 10 * 516 * 3, 10 * 516 * 6),
        ("dense", False, 1000 * 516 * 6, 10 * 516 * 6),
        ("catch_up", True, 10 * 516, 10 * 516 * 6),  # under full softmax no row ever lags
    ],
)
def test_least_work(rows: str, everything: bool, score_bytes: int, update_bytes: int) -> None:
    work = least_work(touched_rows=10, pairs=50, num_classes=1000, dim=128, rows=rows, everything=everything)
    assert (work["score"].bytes, work["update"].bytes) == (score_bytes, update_bytes)
    assert (work["score"].flops, work["update"].flops) == (2 * 50 * 128, 4 * 50 * 128)
    shares = work["update"].shares(2.0, bytes_per_second=update_bytes, flops_per_second=4 * 50 * 128 / 4)
    assert shares == {"memory_percent": pytest.approx(50), "products_percent": pytest.approx(200)}


def test_growth_with_the_number_of_classes() -> None:
    def size(classes: int, step: float) -> dict[str, Any]:
        measured = {"method": "full", "status": "measured", "step_s_per_1k_rows": {"median": step}}
        return {"classes": classes, "results": [measured, {"method": "topk", "status": "skipped: needs 1 GB"}]}

    block = growth([size(4000, 0.8), size(1000, 0.2)])
    assert [*block.frame.columns] == ["method", "1,000 classes", "4,000 classes", "4 times n", "exponent of n"]
    assert block.frame.to_numpy().tolist() == [["full", "0.2", "0.8", "4.00", "1.00"], ["topk", "", "", "", ""]]


def test_memory_that_is_promised_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 10e9)
    assert machine.shortage(8e9) is None
    assert machine.shortage(8e9, 3e9) == "skipped: needs 8.0 GB, 7.0 GB free"


def test_render_says_that_nothing_was_measured() -> None:
    made = {"commit": None, "patch": None, "cpu": "x", "threads": 1, "versions": {}, "started": "now"}
    part = {"classes": 10, "dim": 4, "matrix_mb": 1.0, "results": [{"method": "full", "status": "skipped: needs 1 GB"}]}
    report = {
        "name": "output_layer",
        "kind": "output_layer",
        "provenance": made,
        "overrides": [],
        "classes": [10],
        "sizes": [part],
        "notes": [],
    }
    assert cells(to_markdown(document(report)), "full")[0][1] == "skipped: needs 1 GB"


# ---------------------------------------------------------------- workload and baselines


@pytest.fixture
def workload() -> Workload:
    return Workload(AdamConfig(lr=0.1), num_classes=60, dim=8)


def test_batches_are_the_same_for_all_methods(workload: Workload) -> None:
    one, other = (workload.queries(2, 16, seed=3) for _ in range(2))
    assert all(np.array_equal(a.hidden_BD, b.hidden_BD) for a, b in zip(one, other, strict=True))
    assert not np.array_equal(one[0].targets_P, one[1].targets_P)


def test_distinct_rows(workload: Workload) -> None:
    query = Query(
        hidden_BD=np.zeros((2, 8), dtype=np.float32),
        target_indptr_B1=np.arange(3),
        targets_P=np.array([5, 7], dtype=np.int32),
    )
    assert workload.distinct_rows(query, np.array([5, 9, 9], dtype=np.int32)) == 3
    assert workload.distinct_rows(query, np.array([1], dtype=np.int32)) == 3
    assert workload.distinct_rows(query, None) == 60


def dense_gradient(weight: torch.Tensor, query: Query, ids: np.ndarray, log_count: torch.Tensor) -> torch.Tensor:
    """Return the gradient of sampled softmax by torch on dense logits, with accidental hits masked."""
    weight = weight.clone().requires_grad_()
    target = torch.from_numpy(query.targets_P).long()
    logits = torch.from_numpy(query.hidden_BD) @ weight.T
    drawn = logits[:, ids] - log_count
    drawn = drawn.masked_fill(torch.from_numpy(ids)[None] == target[:, None], -torch.inf)
    own = logits.gather(1, target[:, None])
    loss = torch.nn.functional.cross_entropy(torch.cat([own, drawn], 1), torch.zeros_like(target))
    return torch.autograd.grad(loss, weight)[0]


def test_torch_sampled_follows_the_gradient_of_sampled_softmax(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.bench.torch_baselines.NUM_SAMPLES", 30)
    (query,) = workload.queries(1, 16, seed=1)
    method = TorchSampled(workload)
    state = method.generator.get_state()
    ids, log_count = method._draw()
    method.generator.set_state(state)
    share = np.diff(np.log(np.arange(1, 62))) / np.log(61)
    np.testing.assert_allclose(log_count, np.log(1 - (1 - share[ids]) ** 30), rtol=1e-5)
    before = method.weight.detach().clone()
    drawn = method.step(query, 1, StageClock())
    assert drawn.ids_N is not None
    grad = dense_gradient(before, query, drawn.ids_N, log_count)
    moved = method.weight.detach() - before
    sure = grad.abs() > 1e-6  # Adam's first step is lr times the sign, where epsilon is negligible
    assert sure.any()
    torch.testing.assert_close(moved[sure], -0.1 * grad[sure].sign(), rtol=0.02, atol=0)
    untouched = np.setdiff1d(np.arange(60), np.concatenate([drawn.ids_N, query.targets_P]))
    assert not moved[untouched].any()


def test_torch_full_follows_the_gradient_of_softmax(workload: Workload) -> None:
    (query,) = workload.queries(1, 16, seed=1)
    method = TorchFull(workload)
    before = method.weight.detach().clone()
    assert method.step(query, 1, StageClock()).ids_N is None
    grad = dense_gradient(before, query, np.arange(60), torch.zeros(60))
    sure = grad.abs() > 1e-6
    moved = method.weight.detach() - before
    assert sure.float().mean() > 0.5
    torch.testing.assert_close(moved[sure], -0.1 * grad[sure].sign(), rtol=0.02, atol=0)


@pytest.mark.skipif(not is_installed(), reason="needs tensorflow-cpu")
def test_tensorflow_full_follows_the_gradient_of_softmax(workload: Workload) -> None:
    (query,) = workload.queries(1, 16, seed=1)
    method = TensorFlowFull(workload)
    before = torch.from_numpy(method.weight.numpy())
    assert method.step(query, 1, StageClock()).ids_N is None
    grad = dense_gradient(before, query, np.arange(60), torch.zeros(60))
    sure = grad.abs() > 1e-6
    moved = torch.from_numpy(method.weight.numpy()) - before
    torch.testing.assert_close(moved[sure], -0.1 * grad[sure].sign(), rtol=0.02, atol=0)


@pytest.mark.skipif(not is_installed(), reason="needs tensorflow-cpu")
def test_tensorflow_sampled_follows_the_gradient_of_its_draws(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.bench.tensorflow_baseline.NUM_SAMPLES", 30)
    (query,) = workload.queries(1, 16, seed=1)
    method = TensorFlowSampled(workload)
    before = torch.from_numpy(method.weight.numpy())
    ids_M = method.step(query, 1, StageClock()).ids_N
    assert ids_M is not None
    moved = torch.from_numpy(method.weight.numpy()) - before
    touched = np.union1d(ids_M, query.targets_P)
    assert len(np.unique(ids_M)) == len(ids_M) == method.num_distinct < 30
    assert np.flatnonzero(moved.abs().sum(1)).tolist() == touched.tolist()
    own_B = moved[torch.from_numpy(query.targets_P).long()]
    assert ((own_B * torch.from_numpy(query.hidden_BD)).sum(1) > 0).float().mean() > 0.9  # targets come nearer


def test_blocks_of_logits_stay_within_a_gibibyte() -> None:
    assert block_rows(1000) == 256
    assert block_rows(6_700_910) * 6_700_910 * 4 <= 2**30
    assert block_rows(670_091) == 256
