"""Say in words what an axis counts when a setting is swept: ``draws a token``, not its key."""

from collections.abc import Sequence

from runner.report.numbers.records import RunRecord

_DRAWS = "sampler.num_samples"
WORDS = {
    "sampler.codewords": "codewords a codebook",
    "sampler.K": "hashes a table (K)",
    "sampler.L": "tables (L)",
    "sampler.D": "random features (D)",
    "sampler.nu": "sharpness of the kernel (nu)",
    "sampler.refresh_every_steps": "steps from refresh to refresh",
    "batch_sampler.K": "bits of a table of examples (K)",
    "batch_sampler.L": "tables of examples (L)",
    "output.temperature": "temperature (T)",
    "optimizer.lr": "learning rate",
}


def words_of(key: str, records: Sequence[RunRecord]) -> str:
    """Return what a setting counts, in words if they are known; otherwise the key itself.

    The unit of draws is that of the runs' data (a token, a row), unless a run's draws serve the whole batch.
    """
    if key != _DRAWS:
        return WORDS.get(key, key)
    have = [record for record in records if "num_samples" in record.config.get("sampler", {})]
    if any(record.config["sampler"].get("shared", False) for record in have):
        return "draws"
    return f"draws a {records[0].yardstick.unit}"
