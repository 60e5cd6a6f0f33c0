"""Check what models hand over: class vectors to start from, hidden states, gradients, and what fitted ones rank by.

Legend: B rows of a batch, D hidden size, N classes, K classes that are ranked.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.door.arrays import (
    Wrong,
    as_array,
    check_array,
    check_arrays,
    check_count,
    check_finite,
    check_ids,
    check_plain,
    demand,
    is_finite,
    shown,
)
from runner.door.guard import Guard, is_from_outside

if TYPE_CHECKING:
    from runner.options.settings import RunConfig

_OF_ENCODERS = ("encode", "forward", "backward", "gradients", "state_dict", "load_state_dict")
_OF_FITTED = ("prepare", "fit", "is_sound", "about", "state_dict", "load_state_dict")


def class_vectors(config: "RunConfig", lo: int, hi: int) -> np.ndarray:
    """Return the vectors that the classes lo to hi - 1 start from, (N, D) float32. Raises PluginError."""
    model = config.model
    if not is_from_outside(model):
        return model.class_vectors(lo, hi, config.seed)
    guard = Guard.of(model, "model", model.name)
    dim = _dim(guard, model)
    made = guard.made(lambda: model.class_vectors(lo, hi, config.seed))
    guard.check(lambda: check_array(made, "class_vectors", "float32", hi - lo, dim))
    guard.check(lambda: check_finite(made, "class_vectors"))
    return made


def build_encoder(config: "RunConfig", *, num_features: int, classes: Any) -> Any:
    """Make the encoder of a configuration's model; all that one from outside returns is checked.

    Raises PluginError.
    """
    model = config.model

    def build() -> Any:
        return model.build(num_features=num_features, classes=classes, optimizer=config.optimizer, seed=config.seed)

    if not is_from_outside(model):
        return build()
    guard = Guard.of(model, "model", model.name)
    encoder = guard.made(build)
    _require_methods(guard, encoder, "an Encoder", _OF_ENCODERS)
    dim = _dim(guard, model) if hasattr(model, "dim") else classes.shape[1]
    guard.check(lambda: _check_weights(guard, encoder))
    passes_tensors = getattr(classes, "engine", "numba") == "torch"

    def states(made: Any, batch: Any, *_: Any, **__: Any) -> None:
        made = as_array(made) if passes_tensors else made
        check_array(made, "hidden states", "float32", batch.num_rows, dim)
        # Weights that are no numbers are a training that diverged, which the loop says.
        if not is_finite(made) and _has_finite_weights(encoder):
            check_finite(made, "hidden states")

    def gradients(made: Any, *_: Any, **__: Any) -> None:
        is_list = isinstance(made, list | tuple) and all(callable(getattr(one, "apply", None)) for one in made)
        demand(is_list, f"gradients must return a list of gradients, not {shown(made)}")

    guard.watch(encoder, "encode", states)
    guard.watch(encoder, "forward", states, step=1)
    guard.watch(encoder, "backward", _anything, step=1)
    guard.watch(encoder, "gradients", gradients, step=1)
    guard.watch(encoder, "state_dict", lambda made: check_arrays(made, "state_dict()"))
    return encoder


def build_fitted(model: Any, num_classes: int) -> Any:
    """Make a model that is fitted once; all that one from outside returns is checked. Raises PluginError."""
    if not is_from_outside(model):
        return model.build(num_classes)
    guard = Guard.of(model, "model", model.name)
    fitted = guard.made(lambda: model.build(num_classes))
    _require_methods(guard, fitted, "a Fitted", _OF_FITTED)

    def top(made: Any, batch: Any, k: int) -> None:
        check_array(made, "top", "int32", batch.num_rows, k)
        check_ids(made.ravel(), "ranked ids", num_classes)

    def scores(made: Any, batch: Any) -> None:
        demand(isinstance(made, np.ndarray) and made.dtype.kind == "f", f"scores must be numbers, not {shown(made)}")
        wanted = (batch.num_rows, num_classes)
        demand(made.shape == wanted, f"scores must have shape {wanted}, not {made.shape}")
        demand(not np.isnan(made).any(), "scores have nan, which has no rank")

    if hasattr(fitted, "top"):
        guard.watch(fitted, "top", top)
    if hasattr(fitted, "scores"):
        guard.watch(fitted, "scores", scores)
    for name in ("prepare", "fit", "is_sound"):
        guard.watch(fitted, name, _anything)
    guard.watch(fitted, "about", lambda made: check_plain(made, "about()"))
    guard.watch(fitted, "state_dict", lambda made: check_arrays(made, "state_dict()"))
    return fitted


def _dim(guard: Guard, model: Any) -> int:
    dim = guard.made(lambda: model.dim)
    guard.check(lambda: check_count(dim, "dim"))
    return int(dim)


def _require_methods(guard: Guard, made: Any, what: str, names: tuple[str, ...]) -> None:
    lacking = [name for name in names if not callable(getattr(made, name, None))]
    if lacking:
        raise guard.error(f"build must return {what}, but {shown(made)} lacks {', '.join(lacking)}")


def _check_weights(guard: Guard, encoder: Any) -> None:
    for name in ("tables", "dense"):
        value = guard.made(lambda name=name: getattr(encoder, name))  # type: ignore[misc]
        if not isinstance(value, list | tuple):
            raise Wrong(f"{name} must be a list or a tuple, not {shown(value)}")
    for array in encoder.dense:
        demand(isinstance(array, np.ndarray), f"dense must hold arrays, not {shown(array)}")
    check_arrays(guard.made(encoder.state_dict), "state_dict()")


def _has_finite_weights(encoder: Any) -> bool:
    return all(table.is_finite() for table in encoder.tables) and all(is_finite(part) for part in encoder.dense)


def _anything(*_: Any, **__: Any) -> None:
    """Check nothing: only errors of the plugin's own code are told in one line."""
