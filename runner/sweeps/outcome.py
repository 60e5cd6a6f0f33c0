"""Tell at the end of a sweep what came out: a comparison of exactly its runs, and the jobs that failed."""

import sys
from collections.abc import Mapping, Sequence

from runner.config import Failure
from runner.report.numbers.comparison import as_printed, by_dataset, comparison
from runner.report.numbers.records import record_of
from runner.report.pages.screen import screen_table
from runner.sweeps.plan import Job


def report(jobs: Sequence[Job], failures: Mapping[int, Failure]) -> str:
    """Return a table for each data set and a line for each job without a finished run; run folders tell the rest.

    ``failures`` are known by the job's number.
    """
    records = {
        job.number: record_of(job.step.run, failures[job.number].reason if job.number in failures else "")
        for job in jobs
        if job.step and job.is_launched
    }
    parts = [
        f"## {name}\n\n{screen_table(as_printed(comparison(mine), mine), sys.stderr)}\n"
        for name, mine in by_dataset([record for record in records.values() if record.config])
    ]
    reasons = {
        job.number: failures[job.number].reason if job.number in failures else records[job.number].status
        for job in jobs
        if job.number in failures or (job.number in records and not records[job.number].finished)
    }
    if reasons:
        parts.append(f"{len(reasons)} of {len(jobs)} jobs did not finish:")
        parts += [
            f"[{job.number}/{len(jobs)}] {job.text}: {reasons[job.number]}" for job in jobs if job.number in reasons
        ]
    return "\n".join(parts)
