"""Cards of tables read every published layout; the bundled and the generated table are what they claim to be."""

import gzip
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.data import CardConfig, RegressionDataset, SklearnConfig, SyntheticRegressionConfig
from runner.data.regression.dataset import RegressionManifest
from runner.data.regression.synthetic import ROWS_AT_ONCE
from runner.data.regression.write import DenseWriter
from runner.data.shared.cards import load_card
from runner.data.shared.places import CARDS_ROOT, prepared_dir
from runner.data.shared.prepare import load_card_dataset, prepare_card
from runner.errors import ConfigError, DataError, DataNotPrepared

REPOSITORY = Path(__file__).resolve().parents[2]
MIRROR = os.environ.get("DATA_MIRROR")  # read here, because the fixtures remove it
REAL_CARDS = CARDS_ROOT


def opened(name: str) -> RegressionDataset:
    dataset = CardConfig(name=name, valid_share=0.1).build()
    assert isinstance(dataset, RegressionDataset)
    return dataset


# ---- the published layouts ----


@pytest.fixture
def small_yearmsd(make_card: Callable[..., Path]) -> None:
    """The real card, whose split takes the first 5 and the last 3 rows."""
    text = (REAL_CARDS / "yearmsd" / "card.yaml").read_text()
    text = text.replace("463715", "5").replace("51630", "3").replace("515345", "8").replace(": 90\n", ": 3\n")
    folder = make_card(name="yearmsd")
    (folder / "card.yaml").write_text(text)
    load_card.cache_clear()


YEARS = [[1990 + i, i + 0.25, -i, 10 * i] for i in range(8)]


def years_as_csv() -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in YEARS)


@pytest.mark.parametrize("layout", ["uci", "uci-zip", "libsvm", "libsvm-plain"])
def test_yearmsd(small_yearmsd: None, tmp_path: Path, layout: str) -> None:
    """Both layouts give the same rows: the year is the response, the first rows train, the last ones test."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    if layout == "uci":
        (mirror / "YearPredictionMSD.txt").write_text(years_as_csv())
    elif layout == "uci-zip":
        with zipfile.ZipFile(mirror / "YearPredictionMSD.txt.zip", "w") as file:
            file.writestr("YearPredictionMSD.txt", years_as_csv())
    else:
        import bz2

        lines = [f"{y} " + " ".join(f"{i}:{v}" for i, v in enumerate(x, 1)) + "\n" for y, *x in YEARS]
        for name, part in (("YearPredictionMSD", lines[:5]), ("YearPredictionMSD.t", lines[5:])):
            text = "".join(part).encode()
            if layout == "libsvm":
                (mirror / f"{name}.bz2").write_bytes(bz2.compress(text))
            else:
                (mirror / name).write_bytes(text)
    manifest = prepare_card("yearmsd", given=mirror)
    assert manifest.notes == []
    assert manifest.variant == layout.split("-")[0]
    dataset = opened("yearmsd")
    assert dataset.train.features_RF.tolist() == [row[1:] for row in YEARS[:5]]
    assert dataset.train.response_R.tolist() == [row[0] for row in YEARS[:5]]
    assert dataset.test.features_RF.tolist() == [row[1:] for row in YEARS[5:]]
    assert dataset.test.response_R.tolist() == [row[0] for row in YEARS[5:]]


def test_a_split_by_counts_needs_every_row(small_yearmsd: None, tmp_path: Path) -> None:
    (tmp_path / "YearPredictionMSD.txt").write_text("".join(years_as_csv().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match="7 rows, but the split takes the first 5 and the last 3; is it cut off"):
        prepare_card("yearmsd", given=tmp_path)


def write_slices(folder: Path, patients: int = 97) -> None:
    """Write a file of slice's layout with 3 to 5 images of each patient; the first feature repeats the patient's id."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["patientId," + ",".join(f"value{i}" for i in range(384)) + ",reference"]
    for patient in range(patients):
        for image in range(3 + patient % 3):
            values = [patient, *([0.5] * 382), -0.25]
            lines.append(",".join(map(str, [patient, *values, patient + image / 10])))
    (folder / "slice_localization_data.csv").write_text("\n".join(lines) + "\n")


def test_slice_is_split_by_patient(tmp_path: Path) -> None:
    write_slices(tmp_path / "slice")
    manifest = prepare_card("slice", given=tmp_path)
    assert manifest.notes == ["num_rows is 387, the card expects 53500"]
    dataset = opened("slice")
    assert dataset.num_features == 384, "neither the patient nor the response is a feature"
    patients = {split: set(getattr(dataset, split).features_RF[:, 0].tolist()) for split in ("train", "test")}
    assert not patients["train"] & patients["test"]
    assert patients["train"] | patients["test"] == set(map(float, range(97)))
    assert sorted(patients["test"]) == sorted(np.random.default_rng(0).permutation(97)[:10].tolist())
    for part in (dataset.train, dataset.test):
        assert (np.floor(part.response_R) == part.features_RF[:, 0]).all(), "features and response are of one row"
        assert (np.diff(part.response_R) > 0).all(), "rows keep the order of the file"
    assert dataset.train.num_rows + dataset.test.num_rows == 387


UJI_NAMES = [f"WAP{i:03}" for i in range(1, 521)] + (
    ["LONGITUDE", "LATITUDE", "FLOOR", "BUILDINGID", "SPACEID", "RELATIVEPOSITION", "USERID", "PHONEID", "TIMESTAMP"]
)


def write_uji(folder: Path, names: list[str] = UJI_NAMES) -> None:
    folder.mkdir(parents=True)
    for file, rows in (("trainingData.csv", 4), ("validationData.csv", 2)):
        lines = [",".join(names)]
        for row in range(rows):
            signals = [-104, 0, -60 - row, *([100] * 517)]
            lines.append(",".join(map(str, [*signals, -7541.25 - row, 4864920.5, 2, 1, 106, 2, 100, 23, 1371713733])))
        (folder / file).write_text("\n".join(lines) + "\n")


def test_ujiindoorloc(tmp_path: Path) -> None:
    write_uji(tmp_path / "UJIndoorLoc")
    manifest = prepare_card("ujiindoorloc", given=tmp_path)
    assert isinstance(manifest, RegressionManifest)
    assert (manifest.num_features, manifest.train_rows, manifest.test_rows) == (520, 4, 2)
    assert "num_train is 4, the card expects 19937" in manifest.notes
    dataset = opened("ujiindoorloc")
    assert dataset.train.features_RF[1, :5].tolist() == [-104, 0, -61, -105, -105], "100 means that nothing was seen"
    assert (dataset.train.features_RF[:, 3:] == -105).all()
    assert dataset.test.response_R.tolist() == [-7541.25, -7542.25]


def test_a_file_that_lacks_a_column_of_the_card(tmp_path: Path) -> None:
    write_uji(tmp_path / "UJIndoorLoc", [name.replace("LONGITUDE", "LONG") for name in UJI_NAMES])
    with pytest.raises(DataError, match=r"has no column 'LONGITUDE'; is this another set\? valid: WAP001, ") as caught:
        prepare_card("ujiindoorloc", given=tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000, "529 names are not all listed"


@pytest.mark.parametrize(("name", "columns"), [("protein", 10), ("keggundirected", 28)])
def test_tables_with_the_response_last(tmp_path: Path, name: str, columns: int) -> None:
    rows = [[i + j / 100 for j in range(columns)] for i in range(50)]
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    prepare_card(name, given=tmp_path)
    dataset = opened(name)
    assert (dataset.train.num_rows, dataset.test.num_rows, dataset.num_features) == (45, 5, columns - 1)
    chosen = sorted(np.random.default_rng(0).permutation(50)[:5].tolist())
    assert dataset.test.features_RF.tolist() == [rows[i][:-1] for i in chosen]
    assert dataset.test.response_R.tolist() == [rows[i][-1] for i in chosen]
    with pytest.raises(DataNotPrepared, match=r"slice is not prepared: run `python scripts/prepare_dataset\.py slice`"):
        opened("slice")


REAL = {"protein": (9, 41_157, 4_573), "keggundirected": (27, 57_247, 6_361), "ujiindoorloc": (520, 19_937, 1_111)}


@pytest.mark.parametrize("name", REAL)
def test_real_tables(name: str) -> None:
    """With the real files at hand, counts are those of the card and the numbers have the known statistics."""
    if MIRROR is None or not ((Path(MIRROR) / name).is_dir() or (Path(MIRROR) / "uci" / f"{name}.csv.gz").is_file()):
        pytest.skip(f"DATA_MIRROR names no folder with {name}")
    manifest = prepare_card(name, given=Path(MIRROR))
    assert manifest.notes == []
    dataset = opened(name)
    assert (dataset.num_features, dataset.train.num_rows, dataset.test.num_rows) == REAL[name]
    response = np.concatenate([dataset.train.response_R, dataset.test.response_R])
    if name == "ujiindoorloc":  # the ranges that the publishers print
        assert (response.min(), response.max()) == pytest.approx((-7695.9388, -7299.7865), abs=1e-3)
        assert (dataset.train.features_RF.min(), dataset.train.features_RF.max()) == (-105, 0)
    else:
        assert abs(response.mean()) < 1e-3, "columns are centred"
    if name == "protein":  # RMSD lies in 0 to 20.999, as the UCI repository says
        assert np.exp(response.max() - response.min()) - 1 == pytest.approx(20.999, abs=1e-3)


def test_script_prepares_and_lists_tables(tmp_path: Path, data_dir: Path) -> None:
    def script(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "scripts/prepare_dataset.py", *arguments]
        return subprocess.run(command, cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, check=False)

    write_slices(tmp_path / "m" / "slice")
    done = script("slice", "--from", str(tmp_path / "m"), "--list")
    assert done.returncode == 0, done.stderr
    test = sum(3 + int(patient) % 3 for patient in np.random.default_rng(0).permutation(97)[:10])
    assert f"slice: uci-by-patient, {387 - test} / {test} rows, 384 features in " in done.stdout
    listed = [line.split() for line in done.stdout.splitlines()]
    assert ["slice", "-", "-", "rows", "384", "-", "prepared"] in listed
    assert ["yearmsd", "463,715", "51,630", "rows", "90", "-", "not", "prepared"] in listed


# ---- cards ----

TABLE_CARD = """
family: regression
name: {name}
title: Toy
description: A toy.
licence: none
redistribute: true
citation: none
expected: {{num_features: 1, num_rows: 4, num_train: null, num_test: null}}
counts_source: this test
"""
BODY = "layouts:\n  - {name: toy, data: toy.csv, target: y, test_share: 0.5, group: g}\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("data: toy.csv", "train: toy.csv", "give either train and test, or data"),
        ("data: toy.csv", "train: a, test: b", "train and test are split already"),
        (", test_share: 0.5, group: g", "", "data needs train_rows and test_rows, or test_share"),
        ("test_share: 0.5, group: g", "train_rows: 2", "give either train_rows and test_rows, or test_share"),
        ("test_share: 0.5", "test_share: 0.5, train_rows: 2, test_rows: 2", "give either train_rows and test_rows"),
        ("test_share: 0.5, group: g", "train_rows: 2, test_rows: 0", "must be at least 1"),
        ("test_share: 0.5", "test_share: 1.5", r"test_share must lie in \(0, 1\)"),
        ("test_share: 0.5", "test_share: 0.5, split_seed: -1", "split_seed must be 0 or more"),
        ("test_share: 0.5", "train_rows: 2, test_rows: 2", "group needs test_share"),
        ("target: y", "target: 0.5", "target: must be str or int, found 0.5"),
        ("target: y", "target: null", "target: must be str or int, found None"),
        ("target: y", "missing: {value: 100}, target: y", "missing: key 'becomes' is missing"),
        ("target: y", "colour: red, target: y", "unknown key 'colour'"),
    ],
)
def test_mistakes_in_cards_of_tables_are_one_line(
    make_card: Callable[..., Path], old: str, new: str, message: str
) -> None:
    path = make_card(BODY, head=TABLE_CARD) / "card.yaml"
    assert load_card("toy").size.classes is None
    path.write_text(path.read_text().replace(old, new))
    load_card.cache_clear()
    with pytest.raises(DataError, match=message) as caught:
        load_card("toy")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_one_group_cannot_be_split(make_card: Callable[..., Path], tmp_path: Path) -> None:
    make_card(BODY, head=TABLE_CARD)
    (tmp_path / "toy.csv").write_text("g,x,y\n1,2,3\n1,4,5\n")
    with pytest.raises(DataError, match=r"toy\.csv: .* too few to split"):
        prepare_card("toy", given=tmp_path)
    (tmp_path / "toy.csv").write_text("g,y\n1,2\n2,4\n")
    with pytest.raises(DataError, match=r"toy\.csv: no column is left as a feature"):
        prepare_card("toy", given=tmp_path)


def test_shares_and_thresholds_go_with_the_family() -> None:
    assert CardConfig(name="yearmsd", valid_share=0.5, threshold=2000.0).threshold == 2000
    for name, keys, message in (
        (
            "yearmsd",
            {},
            r"dataset\.valid_share: dataset=yearmsd holds regression, which is validated on a share above 0",
        ),
        ("yearmsd", {"valid_share": 0.6}, r"dataset\.valid_share must lie in \[0, 0\.5\]"),
        ("yearmsd", {"valid_share": 0.1, "threshold": float("nan")}, r"dataset\.threshold must be null or finite"),
        ("ptb", {"valid_share": 0.1}, r"dataset\.valid_share: dataset=ptb holds text, of which no share is held out"),
        ("delicious", {"threshold": 1.0}, r"dataset\.threshold: dataset=delicious holds rows, which has no responses"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            CardConfig(name=name, **keys)
        assert "\n" not in str(caught.value)


# ---- the store ----


def test_numbers_that_are_not_finite_are_never_stored(tmp_path: Path) -> None:
    with (
        DenseWriter(tmp_path, "train", 2) as writer,
        pytest.raises(DataError, match="NaN or infinite numbers cannot be stored"),
    ):
        writer.append(np.array([[1.0, np.nan]]), np.ones(1))


def test_damaged_prepared_tables_are_named(tmp_path: Path) -> None:
    write_slices(tmp_path / "slice", patients=12)
    first = prepare_card("slice", given=tmp_path)
    assert prepare_card("slice", given=tmp_path, force=True).checksum == first.checksum
    path = prepared_dir("slice") / "train.features.npy"
    np.save(path, np.zeros((3, 384)))
    with pytest.raises(DataError, match=r"train\.features\.npy is damaged: .*slice --force` prepares"):
        load_card_dataset("slice")


# ---- diabetes ----


def test_diabetes_is_scikit_learns(capsys: pytest.CaptureFixture[str]) -> None:
    from sklearn.datasets import load_diabetes

    features_RF, response_R = load_diabetes(return_X_y=True, scaled=False)
    dataset = SklearnConfig().build()
    assert "preparing" in capsys.readouterr().err
    assert (dataset.name, dataset.num_features) == ("diabetes", 10)
    is_test_R = np.isin(np.arange(442), np.random.default_rng(0).permutation(442)[:44])
    assert np.array_equal(dataset.train.features_RF, features_RF[~is_test_R])
    assert np.array_equal(dataset.test.features_RF, features_RF[is_test_R])
    assert np.array_equal(dataset.train.response_R, response_R[~is_test_R])
    assert dataset.train.features_RF[:, 0].max() > 70, "ages are in years"
    assert SklearnConfig(threshold=140.0).build().checksum == dataset.checksum
    assert capsys.readouterr().err == ""
    assert SklearnConfig(split_seed=1).build().checksum != dataset.checksum
    with pytest.raises(ConfigError, match=r"dataset\.name: 'iris' is not one of diabetes"):
        SklearnConfig(name="iris")


# ---- the generated table ----


def test_generated_table_follows_its_model() -> None:
    """Moments are those of the stated model; bounds are 5 standard errors of 200,000 rows, or stated beside."""
    config = SyntheticRegressionConfig(num_rows=200_000, tail=8.0)
    dataset = config.build()
    assert (dataset.train.num_rows, dataset.test.num_rows) == (180_000, 20_000)
    x_RF = np.concatenate([dataset.train.features_RF, dataset.test.features_RF])
    y_R = np.concatenate([dataset.train.response_R, dataset.test.response_R])
    assert (x_RF > 0).all()
    spread_F = np.array([0.25 + 0.75 * j / 7 for j in range(8)])
    z_RF = np.log(x_RF) / spread_F
    error = 5 / np.sqrt(len(z_RF))
    assert np.abs(z_RF.mean(axis=0)).max() < error
    assert np.abs(z_RF.var(axis=0) - 1).max() < 1.5 * error
    lags = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    assert np.abs(np.corrcoef(z_RF.T) - 0.6**lags).max() < error
    mean_F = np.exp(spread_F**2 / 2)
    deviation_F = mean_F * np.sqrt(np.exp(spread_F**2) - 1)
    weight_F = np.array([1, -1 / 2, 1 / 3, -1 / 4, 1 / 5, -1 / 6, 1 / 7, -1 / 8])
    noise_R = y_R - ((x_RF - mean_F) / deviation_F) @ weight_F
    size_R = (x_RF / mean_F).mean(axis=1)
    student_R = noise_R / (0.5 * size_R)
    # t with 8 degrees of freedom: variance 8/6, excess kurtosis 6/4; its deviation is below 3 / sqrt(R) per unit.
    assert abs(student_R.mean()) < 1.2 * error
    assert student_R.var() == pytest.approx(8 / 6, abs=3 * error)
    large = size_R > np.median(size_R)
    assert noise_R[large].std() > 1.5 * noise_R[~large].std(), "the scale of the noise depends on the features"


def test_tail_is_that_of_student() -> None:
    """P(|t| > 6) of Student noise: 9.3e-3 for 3 degrees of freedom, 2e-9 for a normal. Bounds are 5 deviations."""
    from scipy.stats import t

    for tail in (3.0, 5.0):
        config = SyntheticRegressionConfig(num_rows=100_000, tail=tail, num_features=2, seed=3)
        rows = config.build().train
        x_RF, spread_F = rows.features_RF, np.array([0.25, 1.0])
        mean_F = np.exp(spread_F**2 / 2)
        signal_R = ((x_RF - mean_F) / (mean_F * np.sqrt(np.exp(spread_F**2) - 1))) @ np.array([1, -0.5])
        student_R = (rows.response_R - signal_R) / (0.5 * (x_RF / mean_F).mean(axis=1))
        chance = 2 * t.sf(6, tail)
        count = (np.abs(student_R) > 6).sum()
        assert abs(count - chance * len(student_R)) < 5 * np.sqrt(chance * len(student_R))


def test_generated_table_is_repeatable_and_cached(capsys: pytest.CaptureFixture[str]) -> None:
    config = SyntheticRegressionConfig(num_rows=9000)
    first = config.build()
    assert "generating" in capsys.readouterr().err
    assert first.train.num_rows > ROWS_AT_ONCE, "several chunks"
    other = SyntheticRegressionConfig(num_rows=9000, name="mine", valid_share=0.2, threshold=0.0).build()
    assert (other.name, other.checksum) == ("mine", first.checksum)
    assert capsys.readouterr().err == ""
    for keys in ({"seed": 1}, {"tail": 4.0}, {"num_features": 9}, {"test_share": 0.2}, {"num_rows": 9001}):
        assert SyntheticRegressionConfig(**{"num_rows": 9000, **keys}).build().checksum != first.checksum
    halves = SyntheticRegressionConfig(num_rows=9000, test_share=0.5).build()
    for part in ("features_RF", "response_R"):
        whole = [np.concatenate([getattr(d.train, part), getattr(d.test, part)]) for d in (first, halves)]
        assert np.array_equal(*whole), "a split only cuts the same rows elsewhere"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_rows": 9}, r"dataset\.num_rows must lie in"),
        ({"num_features": 1}, r"dataset\.num_features must lie in"),
        ({"tail": 2.0}, r"dataset\.tail must lie in \(2, 1e6\], got 2\.0"),
        ({"tail": float("nan")}, r"dataset\.tail"),
        ({"test_share": 0.0}, r"dataset\.test_share must lie in \(0, 0\.5\]"),
        ({"seed": -1}, r"dataset\.seed must lie in"),
        ({"valid_share": 0.0}, r"dataset\.valid_share must lie in"),
        ({"threshold": float("nan")}, r"dataset\.threshold must be null or finite"),
    ],
)
def test_out_of_range_values(keys: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SyntheticRegressionConfig(**keys)
