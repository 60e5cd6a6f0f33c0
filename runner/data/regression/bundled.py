"""Prepare tables for regression that scikit-learn brings along: nothing is downloaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.data.regression.dataset import RegressionDataset
from runner.data.regression.settings import SplitConfig
from runner.errors import require
from runner.options.fields import Variant

BUNDLED = {
    "diabetes": "442 patients, 10 features, progression of diabetes after a year (Efron et al. 2004).",
    "breast_cancer": "569 tumours, 30 features of cell nuclei, 1 for benign, 0 for malignant (Wolberg et al. 1995).",
}


@dataclass(frozen=True, kw_only=True)
class SklearnConfig(SplitConfig):
    """Choose a table that scikit-learn brings along, by its name in `sklearn.datasets.load_<name>`.

    The features of `diabetes` (Efron et al. 2004, Least angle regression) are age, sex, body mass index, blood pressure
    and six blood serum values, in their own units. `breast_cancer` is by Wolberg et al. (1995, UCI, CC BY 4.0).
    """

    kind: str = "sklearn"
    name: str = "diabetes"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.name in BUNDLED, f"dataset.name: {self.name!r} is not one of {', '.join(BUNDLED)}")

    @classmethod
    def variants(cls, name: str) -> Mapping[str, Variant]:
        return {name: Variant(about=about) for name, about in BUNDLED.items()}

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
