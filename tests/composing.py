"""Compose sooner in tests: Hydra takes a tenth of a second, and a thousand tests compose runs.

Files are parsed once. Words are composed once, too, but in tests/config, where composing itself is tested. Commands
that a test starts do neither.
"""

import copy
import dataclasses
import functools
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from runner import config as config_module
from runner.options.conversion import number_in
from runner.registry import FROM_OUTSIDE

_BY_HYDRA = config_module._compose_unchecked
_PLACES = ("results_dir", "dataset.path", "model.checkpoint")  # each test has its own
_PLAIN = re.compile(r"\w+(\.\w+)*=[^{}\[\]]*")  # a word that sets one key, or chooses one file


@functools.cache
def _composed(words: tuple[str, ...], conf: Any) -> DictConfig:
    return _BY_HYDRA(words)


def compose_once(overrides: Iterable[str]) -> DictConfig:
    """Return what Hydra composes; numbers and places are set in what it composed of the other words."""
    overrides = tuple(overrides)
    if FROM_OUTSIDE or not all(map(_PLAIN.fullmatch, overrides)):
        return _BY_HYDRA(overrides)
    words: list[str] = []
    later: dict[str, int | float | str] = {}
    for word in overrides:
        key, _, text = word.partition("=")
        later.pop(key, None)  # the last one counts
        value = text if key in _PLACES and re.fullmatch(r"/[\w/.-]+", text) else number_in(text)
        if value is None or key in config_module.CHOICES:
            words.append(word)
        else:
            later[key] = value
    try:
        config = copy.deepcopy(_composed(tuple(words), config_module.CONF))
        for key, value in later.items():
            OmegaConf.update(config, key, value)
    except Exception:  # a mistake: Hydra itself is to say which
        return _BY_HYDRA(overrides)
    return config


@contextmanager
def files_parsed_once() -> Iterator[None]:
    """Let Hydra parse a file again only after it changed."""
    with pytest.MonkeyPatch.context() as patch:
        Plugins.instance()  # registers the sources
        for scheme in ("file", "pkg"):
            source: Any = SourcesRegistry.instance().resolve(scheme)
            patch.setattr(source, "load_config", _parsing_once(source.load_config))
        yield


def _parsing_once(load: Callable[[Any, str], ConfigResult]) -> Callable[[Any, str], ConfigResult]:
    kept: dict[Any, tuple[ConfigResult, bytes]] = {}

    def load_config(self: Any, config_path: str) -> ConfigResult:
        file = os.path.join(self.path, self._normalize_file_name(config_path))
        state = os.stat(file) if os.path.isfile(file) else None
        key = (self.path, self.provider, config_path, state and (state.st_mtime_ns, state.st_size))
        if key not in kept:
            result = load(self, config_path)
            kept[key] = result, pickle.dumps(result.config)
        result, config = kept[key]
        return dataclasses.replace(result, config=pickle.loads(config))  # sooner than a copy

    return load_config
