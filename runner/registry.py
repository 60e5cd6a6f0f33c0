"""Register samplers, losses, models, data sets and tasks from outside this package.

A plugin is a module that registers some of them. ``python -m runner plugins=[my_sampler] sampler=my_sampler`` imports
``my_sampler``, a module on the Python path or in the current folder (``plugins=[./my_sampler.py]`` names a file). That
module calls ``register_sampler`` or another function of this file. Registered classes are named, composed, compiled,
trained and resumed like built-in ones. Packages that declare an entry point in the group ``runner.plugins`` are loaded
without being named. See docs/extending.md.
"""

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from runner.errors import ConfigError, RunnerError, require
from runner.home import CONF
from runner.options.conversion import as_path
from runner.options.settings import RunConfig, module_name

if TYPE_CHECKING:
    from runner.lgd import ExampleSamplerConfig
    from runner.models.base import ModelChoice
    from runner.output.losses import LossConfig
    from runner.samplers import SamplerConfig
    from runner.tasks import Task

ENTRY_POINTS = "runner.plugins"
TRUSTED = "TRUSTED_PLUGINS"
FROM_OUTSIDE: dict[tuple[str, str], type] = {}
"""The config class of everything registered, by its group of conf/ and its name."""
_installed_are_loaded = False

# ---------------------------------------------------------------- registering


def register_sampler(name: str, config_class: "type[SamplerConfig]") -> None:
    """Make ``sampler=NAME`` valid. Raises ConfigError if the name is taken or the class is not a complete config."""
    from runner.samplers import SAMPLERS, SamplerConfig

    _register("sampler", SAMPLERS, name, config_class, SamplerConfig)


def register_batch_sampler(name: str, config_class: "type[ExampleSamplerConfig]") -> None:
    """Make ``batch_sampler=NAME`` valid: a sampler of training examples."""
    from runner.lgd import BATCH_SAMPLERS, ExampleSamplerConfig

    _register("batch_sampler", BATCH_SAMPLERS, name, config_class, ExampleSamplerConfig)


def register_loss(name: str, config_class: "type[LossConfig]") -> None:
    """Make ``loss=NAME`` valid for every sampler that goes with the built-in loss ``config_class.like``.

    Raises ConfigError if the name is taken or the class is not a complete config.
    """
    from runner.output.losses import LOSSES, LossConfig

    like = getattr(config_class, "like", None)
    require(
        like in LOSSES,
        f"loss={name}: {config_class.__name__}.like must name the loss whose samplers it goes with; valid:"
        f" {', '.join(LOSSES)}",
    )
    require(
        not LOSSES[str(like)].needs_every_class or getattr(config_class, "apply", None) is LossConfig.apply,
        f"loss={name}: {config_class.__name__}.apply would never be called, because the loss is like {like}, which has"
        " no list of logits; take another like",
    )
    _register("loss", LOSSES, name, config_class, LossConfig)


def register_model(name: str, config_class: "type[ModelChoice]") -> None:
    """Make ``model=NAME`` valid for data sets of the family ``config_class.reads``.

    Raises ConfigError if the name is taken or the class is not a complete config.
    """
    from runner.models.base import ModelChoice
    from runner.parts import MODELS

    _register("model", MODELS, name, config_class, ModelChoice)


def register_dataset_kind(kind: str, config_class: type) -> None:
    """Make ``dataset=KIND`` valid: ``config_class.build()`` returns a data set of the family ``config_class.family``.

    Raises ConfigError if the name is taken or the class is not a complete config.
    """
    from runner.data import KINDS

    require(
        all(hasattr(config_class, what) for what in ("build", "family")),
        f"dataset={kind}: {getattr(config_class, '__name__', config_class)} must have build() and family",
    )
    _register("dataset", KINDS, kind, config_class, object, "kind", "name")


def register_task(family: str, task_class: "type[Task]") -> None:
    """Say how data sets of a new family are trained on and measured. Raises ConfigError if the family has a task."""
    from runner.parts import TASKS
    from runner.tasks import Task

    _require_free("task of family", TASKS, family)
    require(
        inspect.isclass(task_class) and issubclass(task_class, Task) and not inspect.isabstract(task_class),
        f"task of family {family}: {task_class!r} must be a subclass of runner.tasks.Task with all methods defined",
    )
    TASKS[family] = task_class


def _register(
    group: str, registry: MutableMapping[str, Any], name: str, cls: type, base: type, *keys: str
) -> None:  # fmt: skip
    """Check the class and put it into the registry; ``keys`` are the fields that it must have (default: name)."""
    what = f"{group}={name}"
    require(
        re.fullmatch(r"[A-Za-z]\w*", name) is not None,
        f"{what}: a name must be a letter followed by letters, digits or '_'",
    )
    _require_free(f"{group}=", registry, name)
    taken = (CONF / group / f"{name}.yaml").exists()
    require(not taken, f"{what} is taken by conf/{group}/{name}.yaml: register yours under another name")
    require(inspect.isclass(cls) and issubclass(cls, base), f"{what}: {cls!r} must be a subclass of {base.__name__}")
    # A subclass without the decorator counts as a dataclass too, but its own fields are ignored.
    params = vars(cls).get("__dataclass_params__")
    require(
        params is not None and params.frozen,
        f"{what}: decorate {cls.__name__} with @dataclass(frozen=True, kw_only=True)",
    )
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    require(not missing, f"{what}: {cls.__name__} lacks {', '.join(missing)}")
    fields = {field.name for field in dataclasses.fields(cls)}
    for key in keys or ("name",):
        require(key in fields, f"{what}: {cls.__name__} must have a field '{key}: str'")
    registry[name] = cls
    FROM_OUTSIDE[group, name] = cls


def _require_free(what: str, registry: MutableMapping[str, Any], name: str) -> None:
    joint = "" if what.endswith("=") else " "
    require(name not in registry, f"{what}{joint}{name} is taken: register yours under another name")


# ---------------------------------------------------------------- loading


def load_plugins(plugins: Iterable[str]) -> None:
    """Import the installed plugins, then the given modules (by name) and files (by a path that ends in .py), each once.

    Raises ConfigError, one line that names the module, if a plugin cannot be imported or registered.
    """
    global _installed_are_loaded
    if not _installed_are_loaded:
        for entry in entry_points(group=ENTRY_POINTS):
            _telling(f"installed plugin '{entry.name}' ({entry.value})", entry.load)
        _installed_are_loaded = True
    named = list(plugins)
    for plugin in named:
        _telling(f"plugin '{plugin}'", lambda plugin=plugin: _import(plugin))  # type: ignore[misc]
    for name in {*map(module_name, named), *(cls.__module__ for cls in FROM_OUTSIDE.values())}:
        source_digest(name)


def check_trusted(origin: Path, plugins: Iterable[str]) -> None:
    """Raise RunnerError if a file names plugins that the user did not: importing a plugin runs its code.

    Those are trusted that are loaded already, and those that the environment variable TRUSTED_PLUGINS names.
    """
    trusted = os.environ.get(TRUSTED, "").split(",")
    asked = [plugin for plugin in plugins if plugin not in trusted and not _is_loaded(plugin)]
    if asked:
        raise RunnerError(
            f"{origin} names plugins, which are code that would run: {', '.join(asked)}; if you trust them, set"
            f" {TRUSTED}={','.join(asked)}"
        )


def _is_loaded(plugin: str) -> bool:
    module = sys.modules.get(module_name(plugin))
    if module is None or not plugin.endswith(".py"):
        return module is not None
    file = getattr(module, "__file__", None)
    return file is not None and os.path.realpath(file) == os.path.realpath(plugin)


# ---------------------------------------------------------------- sources


def sources_of(config: RunConfig) -> dict[str, str]:
    """Return the digest of the sources of every plugin that a run uses, by the name of its module.

    They are those that ``plugins`` names, and installed ones whose classes the run has chosen.
    """
    chosen = (type(getattr(config, field.name)) for field in dataclasses.fields(config))
    installed = {cls.__module__ for cls in chosen if cls in FROM_OUTSIDE.values()}
    names = {*map(module_name, config.plugins), *(name for name in installed if not name.startswith("runner."))}
    return {name: source_digest(name) for name in sorted(names)}


_digests: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()


def source_digest(name: str) -> str:
    """Return the sha256 of the source files that a module was loaded from, as they were when it was loaded.

    What it imports from its own folder belongs to them. A file that is edited later is not what this process runs.
    """
    module = sys.modules[name]
    if module not in _digests:
        file = file_of(name)
        sources = [name.encode()] if file is None else [source.read_bytes() for source in _sources(file)]
        _digests[module] = hashlib.sha256(b"".join(sources)).hexdigest()
    return _digests[module]


def file_of(module: str) -> Path | None:
    """Return the source file of a loaded module, None if it has none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file is not None and Path(file).is_file() else None


def _sources(file: Path) -> list[Path]:
    """Return a source file, and the files of its folder that it imports, directly or not, in the order of their names.

    Nothing is imported to find them.
    """
    found: set[Path] = set()
    left = [file]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imports(path)
    return [file, *sorted(found - {file})]


def _imports(file: Path) -> Iterator[Path]:
    """Return the files in a file's folder, and in folders of it, that its import statements name."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # compiled code, or a file that is being edited
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in named:
            folder = file.parent
            for part in filter(None, name.split(".")):
                yield from (path for path in (folder / f"{part}.py", folder / part / "__init__.py") if path.is_file())
                folder = folder / part if (folder / part / "__init__.py").is_file() else folder


def _import(plugin: str) -> None:
    name = module_name(plugin)
    if not plugin.endswith(".py"):
        importlib.import_module(name)
        return
    path = as_path(plugin, "plugins")
    require(path.is_file(), "there is no such file")
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        file = getattr(importlib.import_module(name), "__file__", None)
        require(
            file is not None and Path(file).exists() and path.samefile(file),
            f"another module is called {name}: rename the file",
        )
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the cache of kernels look it up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _telling(what: str, load: Callable[[], object]) -> None:
    """Load a plugin and report any failure as a ConfigError of one line."""
    try:
        load()
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} cannot be imported: {error}; name a module on the Python path or in the current folder, or a"
            " file, e.g. plugins=[./my_sampler.py]"
        ) from None
    except RunnerError as error:
        raise ConfigError(f"{what}: {error}") from None
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{what} failed at {Path(frame.filename).name}:{frame.lineno}: {type(error).__name__}: {error}"
        ) from error
