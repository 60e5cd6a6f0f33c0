"""Generate data sets of extreme classification of any size, learnable, with siblings as hard negatives.

Model. The N classes are the leaves of a tree; every inner node has `branching` children. Every node owns a few words,
which a hash gives, so nothing is stored per class. A leaf's words are nearly unique to it; an inner node's words are
shared by its subtree. A row draws its main class from the label frequencies. Most of its further labels come from the
main class's neighbourhood (the smallest subtree with at least twice `labels_per_row` leaves). A tenth comes from all
classes, in proportion to frequency. A row has three kinds of words: leaf words of its labels, words of the main
class's ancestors, and Zipfian noise. Words of inner nodes point to the neighbourhood, and only leaf words tell
siblings apart, so a sampler that proposes siblings gives useful gradients. Values are (1 + ln tf) · idf, positive,
and rows have unit length.

Class ids. Tree position and frequency rank are two independent random permutations of the ids, so an id says nothing
about its frequency or its siblings. In particular ids are NOT sorted by decreasing frequency: samplers that need that
order (log-uniform) must first rank the classes by training counts.

Each chunk of rows is drawn from a generator keyed by (seed, split, chunk). So memory is bounded by one chunk and a few
arrays over the classes, and the same configuration gives the same bytes.

Legend: r rows of a chunk, N classes, S word slots (with repetitions) of a chunk.
"""

import dataclasses
import hashlib
import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from runner.data.rows.dataset import XmcDataset
from runner.data.shared.base import DatasetConfig, seed_of, share_for_validation
from runner.errors import ConfigError
from runner.options.fields import option

GENERATOR_VERSION = 1  # part of the folder's hash; raise it when the same configuration gives other data than before
LIKE = ("amazon670k", "wiki325k", "odp", "amazoncat13k", "delicious200k")
FREQUENCIES = ("power_law", "uniform")
MOST_CLASSES = 10_000_000
ROWS_AT_ONCE = 4096

# The shares set the difficulty: a nearest-centroid classifier (cosine) must do well but confuse siblings. With leaf
# words in half of the slots it is nearly always right, and samplers can no longer be told apart.
LEAF_SHARE, TREE_SHARE = 0.10, 0.30  # shares of leaf words and of ancestors' words in a row's slots; the rest is noise
MAIN_SHARE = 0.5  # share of the leaf slots that the main class fills; any label of the row fills the others
GLOBAL_LABELS = 0.1  # share of the further labels that are drawn from all classes
LEAF_WORDS, NODE_WORDS = 10, 12  # number of words that a leaf and an inner node own
NOISE_VOCABULARY = 0.2  # share of the features that are noise words; they have the first ids
RANK_OFFSET = 10.0  # flattens the head of the power law, so that no class has a tenth of the rows


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Hold the sizes of the generated set; labels and features per row are means."""

    num_classes: int
    num_features: int
    num_train: int
    num_test: int
    labels_per_row: float
    features_per_row: float


DEFAULT_SHAPE = Shape(
    num_classes=1000,
    num_features=5000,
    num_train=20_000,
    num_test=4000,
    labels_per_row=3.0,
    features_per_row=30.0,
)


@dataclass(frozen=True, kw_only=True)
class SyntheticXcConfig(DatasetConfig):
    """Generate data of any size, which may have the shape of a published set.

    The siblings of a class in the class tree are the hard negatives.
    """

    family: ClassVar[str] = "rows"

    kind: str = "synthetic_xc"
    name: str = "synthetic_xc"
    like: str | None = option(
        None, "published set whose shape is taken from its card; keys that are not null override it", choices=LIKE
    )
    num_classes: int | None = option(None, "number of classes", null="1,000 without like", low=2, high=MOST_CLASSES)
    num_features: int | None = option(None, "number of features", null="5,000 without like", low=100, high=2**31 - 1)
    num_train: int | None = option(None, "training rows", null="20,000 without like", low=1, high=2**31 - 1)
    num_test: int | None = option(None, "test rows", null="4,000 without like", low=1, high=2**31 - 1)
    labels_per_row: float | None = option(
        None, "mean number of labels of a row", null="3 without like", low=1, high=200
    )
    features_per_row: float | None = option(
        None, "mean number of features of a row", null="30 without like", low=4, high=2000
    )
    label_frequency: str = option("power_law", "how frequent classes are", choices=FREQUENCIES)
    exponent: float = option(
        1.1, "exponent of the power law: the class of rank r has a frequency ~ (r + 10)^-exponent", low=0, high=5
    )
    branching: int = option(16, "children of a node of the class tree", low=2, high=256)
    seed: int = seed_of("the data, which do not depend on the run's seed", 2**63 - 1)
    valid_share: float = share_for_validation(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape.labels_per_row > self.shape.num_classes / 2:
            raise ConfigError(
                f"dataset.labels_per_row: must be at most half of num_classes ({self.shape.num_classes}),"
                f" found {self.shape.labels_per_row:g}"
            )

    @cached_property
    def shape(self) -> Shape:
        """Return the sizes to generate: the given keys, and for the others those of `like` or DEFAULT_SHAPE."""
        base = DEFAULT_SHAPE
        if self.like is not None:
            from runner.data.rows.card import load_rows_card

            expected = load_rows_card(self.like).expected
            base = Shape(**{f.name: getattr(expected, f.name) for f in dataclasses.fields(Shape)})
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(Shape)}
        return dataclasses.replace(base, **{key: value for key, value in given.items() if value is not None})

    @property
    def propensities(self) -> tuple[float, float]:
        """Return the constants (a, b) of the propensities of the imitated set."""
        if self.like is None:
            return 0.55, 1.5
        from runner.data.rows.card import load_rows_card

        card = load_rows_card(self.like)
        return card.propensity_a, card.propensity_b

    @property
    def key(self) -> str:
        """Return a hash of everything that the data depend on; it names the cache folder."""
        parts: dict[str, Any] = {
            "generator": GENERATOR_VERSION,
            **dataclasses.asdict(self.shape),
            "label_frequency": self.label_frequency,
            "exponent": self.exponent if self.label_frequency == "power_law" else 0.0,
            "branching": self.branching,
            "seed": self.seed,
            "propensities": self.propensities,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def build(self) -> XmcDataset:
        """Generate the set and open it; a configuration that was generated before is only opened."""
        from runner.data.shared.places import prepared_dir
        from runner.data.shared.store import load_once_filled

        folder, says = prepared_dir("synthetic_xc", self.key), f"generating {self.name} {self.key}"
        return load_once_filled(folder, XmcDataset, self.name, lambda place: _generate(self, place), says=says)


def _generate(config: SyntheticXcConfig, folder: Path) -> Any:
    from tqdm import tqdm

    from runner.data.rows.dataset import RowsManifest
    from runner.data.rows.write import RowsWriter
    from runner.data.shared.manifests import combine

    generator = Generator(config)
    shape = config.shape
    counts, digests = [], []
    for number, (split, rows) in enumerate((("train", shape.num_train), ("test", shape.num_test))):
        bar = tqdm(total=rows, unit="row", desc=split, file=sys.stderr, disable=None)
        with bar, RowsWriter(folder, split) as writer:
            for chunk, start in enumerate(range(0, rows, ROWS_AT_ONCE)):
                size = min(ROWS_AT_ONCE, rows - start)
                writer.append(*generator.chunk(number, chunk, size))
                bar.update(size)
            digests.append(writer.finish())
        counts.append(writer.counts())
    return RowsManifest(
        name="synthetic_xc",
        variant=f"like-{config.like}" if config.like else "own-shape",
        num_features=shape.num_features,
        num_classes=shape.num_classes,
        propensity_a=config.propensities[0],
        propensity_b=config.propensities[1],
        train=counts[0],
        test=counts[1],
        checksum=combine(shape.num_features, shape.num_classes, *digests),
        sources={},
        notes=[],
    )


class Generator:
    """Draw chunks of rows from the model: class frequencies, tree positions, word hashes. It holds O(N) numbers."""

    def __init__(self, config: SyntheticXcConfig) -> None:
        self.shape = config.shape
        self.branching = config.branching
        self.seed = config.seed
        classes = self.shape.num_classes
        rng = np.random.default_rng([config.seed, 2])
        self.class_of_leaf = rng.permutation(classes).astype(np.int32)
        rank_of_leaf = rng.permutation(classes)
        exponent = config.exponent if config.label_frequency == "power_law" else 0.0
        self.log_weight = (-exponent * np.log(rank_of_leaf + RANK_OFFSET)).astype(np.float32)  # (N) indexed by leaf
        cumulative = np.cumsum(np.exp(self.log_weight, dtype=np.float64))
        self.cumulative = cumulative / cumulative[-1]
        self.pool = self.branching  # number of leaves of a neighbourhood
        while self.pool < min(2 * self.shape.labels_per_row, classes):
            self.pool *= self.branching
        self.depth = 1  # number of levels above the leaves; level d has ceil(N / branching^d) nodes
        while self.branching**self.depth < classes:
            self.depth += 1
        self.noise_words = max(1, int(NOISE_VOCABULARY * self.shape.num_features))
        # The number of slots per distinct word has no simple closed form, so a pilot chunk measures it.
        self.repetition = 1.0
        for _ in range(2):
            pilot_sizes = self.chunk(3, 0, 512)[0]
            self.repetition = min(4.0, self.repetition * self.shape.features_per_row / pilot_sizes.mean())

    def chunk(
        self, split: int, number: int, rows: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Draw one chunk; return row sizes (r), indices, values, label sizes (r) and labels.

        `split`: 0 for training rows, 1 for test rows. `number`: number of the chunk within the split. `rows`: r.
        """
        rng = np.random.default_rng([self.seed, split, number])
        main = self._draw(rng, rows)
        label_rows, leaves = self._labels(rng, main)
        label_sizes = np.bincount(label_rows, minlength=rows)
        indices, values, sizes = self._words(rng, main, label_sizes, leaves)
        labels = self.class_of_leaf[leaves].astype(np.int64)
        order = np.argsort(label_rows * self.shape.num_classes + labels)
        return sizes, indices, values, label_sizes, labels[order]

    def _draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw leaves in proportion to their frequencies, (count,) int64."""
        leaf = np.searchsorted(self.cumulative, rng.random(count), side="right")
        return np.minimum(leaf, self.shape.num_classes - 1)

    def _labels(self, rng: np.random.Generator, main: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw the labels of each row, its main class included; return row and leaf of each, in the order of rows."""
        rows, classes = len(main), self.shape.num_classes
        extra = rng.poisson(self.shape.labels_per_row - 1, rows)
        anywhere = rng.binomial(extra, GLOBAL_LABELS)
        near = np.minimum(extra - anywhere, self.pool - 1)
        leaf = (main // self.pool * self.pool)[:, None] + np.arange(self.pool)  # (r, pool)
        # Gumbel top-k trick: the k largest of log weight + Gumbel noise are k draws without replacement.
        noisy = self.log_weight[np.minimum(leaf, classes - 1)] + rng.gumbel(size=leaf.shape)
        noisy[(leaf >= classes) | (leaf == main[:, None])] = -np.inf
        most = int(near.max(initial=0))
        top = np.argsort(-noisy, axis=1)[:, :most] if most else np.zeros((rows, 0), np.int64)
        chosen = (np.arange(most) < near[:, None]) & np.isfinite(np.take_along_axis(noisy, top, 1))
        row_of_near, place = np.nonzero(chosen)
        row = np.concatenate([np.arange(rows), row_of_near, np.repeat(np.arange(rows), anywhere)])
        near_leaf = leaf[row_of_near, top[row_of_near, place]]
        far_leaf = self._draw(rng, int(anywhere.sum()))
        pairs = np.unique(row * classes + np.concatenate([main, near_leaf, far_leaf]))
        return pairs // classes, pairs % classes

    def _words(
        self, rng: np.random.Generator, main: np.ndarray, label_sizes: np.ndarray, leaves: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw the words of each row; return feature indices, values and row sizes (r)."""
        rows, shape = len(main), self.shape
        slots = np.maximum(4, rng.poisson(shape.features_per_row * self.repetition, rows))
        row = np.repeat(np.arange(rows), slots)  # (S)
        kind = rng.random(len(row))
        # Leaf words belong to the main class or to any label of the row.
        starts = np.cumsum(label_sizes) - label_sizes
        any_label = leaves[starts[row] + (rng.random(len(row)) * label_sizes[row]).astype(np.int64)]
        node = np.where(rng.random(len(row)) < MAIN_SHARE, main[row], any_label)
        level = np.zeros(len(row), np.int64)
        # Inner words belong to ancestors of the main class.
        inner = kind >= LEAF_SHARE
        level[inner] = rng.integers(1, self.depth + 1, int(inner.sum()))
        node[inner] = main[row[inner]] // self.branching ** level[inner]
        owned = np.where(level == 0, LEAF_WORDS, NODE_WORDS)
        which = (rng.random(len(row)) * owned).astype(np.int64)
        word = self._hash(level, node, which)
        idf = 1.0 + np.log(np.maximum(1.0, shape.num_classes / float(self.branching) ** level))
        # Noise words have rank r with probability ~ 1 / r, drawn by inverting the integral of 1 / x.
        noise = kind >= LEAF_SHARE + TREE_SHARE
        rank = np.exp(rng.random(int(noise.sum())) * np.log(self.noise_words + 1.0))
        word[noise] = np.minimum(rank.astype(np.int64), self.noise_words) - 1
        idf[noise] = 1.0 + np.log(rank)
        # Words that are repeated in a row become one entry with tf > 1.
        keys, first, tf = np.unique(row * shape.num_features + word, return_index=True, return_counts=True)
        values = (1.0 + np.log(tf)) * idf[first]
        key_row = keys // shape.num_features
        norms = np.sqrt(np.bincount(key_row, values**2, minlength=rows))
        sizes = np.bincount(key_row, minlength=rows)
        return keys % shape.num_features, values / norms[key_row], sizes

    def _hash(self, level: np.ndarray, node: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Return the feature ids (above the noise vocabulary) of words of nodes, by splitmix64."""
        with np.errstate(over="ignore"):
            x = (
                node.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
                + which.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
                + level.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
                + np.uint64(self.seed)
            )
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
            x ^= x >> np.uint64(31)
        free = self.shape.num_features - self.noise_words
        return self.noise_words + (x % np.uint64(free)).astype(np.int64)
