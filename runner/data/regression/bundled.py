"""Prepare tables for regression that scikit-learn brings along: nothing is downloaded."""

from dataclasses import dataclass
from pathlib import Path

from runner.data.regression.dataset import RegressionDataset
from runner.data.regression.settings import SplitConfig
from runner.errors import require

BUNDLED = ("diabetes", "breast_cancer")


@dataclass(frozen=True, kw_only=True)
class SklearnConfig(SplitConfig):
    """Choose a table that scikit-learn brings along, by its name in `sklearn.datasets.load_<name>`.

    `diabetes` (Efron et al. 2004, Least angle regression): 442 patients, 10 features (age, sex, body mass index, blood
    pressure, six blood serum values) and the progression of the disease after a year. Features have their own units.
    `breast_cancer` (Wolberg et al. 1995, UCI, CC BY 4.0): 569 tumours, 30 features of cell nuclei, and 1 for a benign
    tumour, 0 for a malignant one.
    """

    kind: str = "sklearn"
    name: str = "diabetes"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.name in BUNDLED, f"dataset.name: {self.name!r} is not one of {', '.join(BUNDLED)}")

    def build(self) -> RegressionDataset:
        """Split the table and open it; the same split is prepared once."""
        from runner.data.regression.dataset import RegressionManifest
        from runner.data.regression.write import write_dense
        from runner.data.shared.manifests import Origin, combine
        from runner.data.shared.places import prepared_dir
        from runner.data.shared.splits import split_rows
        from runner.data.shared.store import load_once_filled

        def fill(folder: Path) -> RegressionManifest:
            from sklearn import datasets

            options = {"scaled": False} if self.name == "diabetes" else {}
            features_RF, response_R = getattr(datasets, f"load_{self.name}")(return_X_y=True, **options)
            parts = zip(("train", "test"), split_rows(len(response_R), self.test_share, self.split_seed), strict=True)
            return write_dense(
                folder,
                {split: [(features_RF[rows_R], response_R[rows_R])] for split, rows_R in parts},
                num_features=features_RF.shape[1],
                origin=Origin(
                    name=self.name,
                    variant=f"scikit-learn-seed-{self.split_seed}",
                    sources={f"sklearn.datasets.load_{self.name}": ""},
                ),
            )

        folder = prepared_dir(self.name, combine(self.test_share, self.split_seed)[:16])
        return load_once_filled(folder, RegressionDataset, self.name, fill, says=f"preparing {self.name}")
