"""Compile or load every kernel that a configuration needs, before any clock starts."""

from contextlib import suppress

import numpy as np

from runner.door.examples import build_example_sampler
from runner.errors import Diverged, PluginError
from runner.machine.clock import StageClock
from runner.measures.by_rank import proposal_of
from runner.measures.divergence import divergence_of
from runner.options.settings import RunConfig
from runner.parts import rehearsal_of


def warm_up(config: RunConfig) -> None:
    """Train, evaluate and diagnose on throw-away data, so that all kernels are compiled or loaded.

    What is wrong with a plugin there, the run's own data tell in the run's own numbers.
    """
    with suppress(PluginError):
        _rehearse(config)


def _rehearse(config: RunConfig) -> None:
    task = rehearsal_of(config)
    network = task.build_network()
    sampler = build_example_sampler(
        config.batch_sampler, examples=task.examples, batch_size=task.config.batch_size, seed=config.seed
    )
    view = task.view(network)
    sampler.refresh(0, view)
    clock, step = StageClock(), 0
    compiled = task.compiled_steps(network, sampler)
    with np.errstate(all="ignore"):  # what overflows on throw-away data says nothing about the run
        while step < task.training.steps_per_epoch:
            if compiled is not None:
                step += compiled.take(step + 1, 2)[1]
                continue
            step += 1
            draw = sampler.draw(step, view)
            if view is not None and sampler.learns_norms:
                sampler.observe(draw.rows_B, view.gradient_norms(draw.rows_B))
            network.train_step(task.batch(draw), step, clock)
            sampler.refresh(step, view)
    after = step + 1
    if config.evaluation.seconds_factor is not None:
        with network.caught_up(after):
            pass
    network.read_all(after)
    with suppress(Diverged):  # divergence on throw-away data says nothing about the run
        task.evaluate_subset(network)
    if not network.has_classes:
        return
    probe = task.probe(8)
    proposal_of(network, probe, after)
    if config.diagnostics.every_epochs is not None:
        divergence_of(network, probe, first_step=after, draws=2)
