"""Replaces trainers' and libraries' functions by smelt's, in modules that are imported already or later.

A finder in front of sys.meta_path handles the import of the table's modules (_trainers.py). Each name gets its own copy
of smelt's function, so that `uninstall` can find the modules that imported it later.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.machinery
import logging
import sys
import threading
import types
from dataclasses import dataclass, field

from ._trainers import TRAINERS, Names, Namespace

logger = logging.getLogger("smelt_kernels.compat")

_ABSENT = object()
_COMPAT = __name__.rpartition(".")[0]
_lock = threading.RLock()


@dataclass
class Report:
    """What `install` has replaced so far; later imports add to it."""

    replaced: list[str] = field(default_factory=list)  # module.name, with modules that had imported the function
    waiting: list[str] = field(default_factory=list)  # modules that are not imported yet
    without: dict[str, str] = field(
        default_factory=dict
    )  # modules that cannot be imported and have only smelt's functions
    held: list[str] = field(default_factory=list)  # objects that still hold an original function

    def __str__(self) -> str:
        lines = [f"replaced {name}" for name in self.replaced]
        lines += [f"replaced when it is imported: {name}" for name in self.waiting]
        lines += [
            f"{name} cannot be imported ({why}): it has only smelt's functions"
            for name, why in self.without.items()
        ]
        return "\n".join(lines + [f"not replaced: {held}" for held in self.held])


@dataclass(eq=False, slots=True)
class _Site:
    """A name that was replaced."""

    path: str  # of the module, or of an object in one
    name: str
    holder: object  # the module or the object
    original: object
    ours: object
    places: list[str] = field(default_factory=list)  # module.name of other references to the original

    def __str__(self) -> str:
        return f"{self.path}.{self.name}"


_ALONE = _Site("", "", None, object(), None)  # a site whose original nothing else holds
_active: dict[str, None] = {}  # the names installed, in order
_wanted: dict[str, Names] = {}  # the modules in which they replace names
_sites: dict[tuple[str, str], _Site] = {}
_former: list[_Site] = []  # of modules that were imported again; other modules may still hold their functions
_without: dict[str, str] = {}
_held: dict[_Site, list[str]] = {}  # the lines of Report.held about a site's original


# ---- the modules to change -------------------------------------------------------------------------------


def _modules(names) -> dict[str, Names]:
    """The modules in which these trainers and libraries replace names."""
    wanted: dict[str, Names] = {}
    for name in names:
        trainer = TRAINERS[name]
        for path, entries in (*_modules(trainer.libraries).items(), *trainer.kernels.items(), *trainer.others.items()):
            wanted[path] = {**wanted.get(path, {}), **entries}
    return wanted


def _is_kernel(path: str) -> bool:
    return any(path in trainer.kernels for trainer in TRAINERS.values())


def _is_optional(path: str) -> bool:
    return any(path in trainer.kernels for trainer in TRAINERS.values() if trainer.optional)


def _check(names: tuple) -> None:
    for name in names:
        if name not in TRAINERS:
            raise ValueError(
                f"smelt: {name!r} is not a known trainer or library; known are {', '.join(sorted(TRAINERS))}"
            )


def _copy(reference: object, path: str, name: str) -> object:
    """smelt's function or class for one module: a copy, which pickles by that module's name."""
    if not isinstance(reference, str):
        return reference
    module, _, attribute = reference.rpartition(".")
    ours = getattr(importlib.import_module(f"{_COMPAT}.{module}"), attribute)
    if isinstance(ours, type):
        return type(ours.__name__, (ours,), {"__doc__": ours.__doc__, "__module__": path, "__qualname__": name})
    if not isinstance(ours, types.FunctionType):
        return ours
    copy = types.FunctionType(ours.__code__, ours.__globals__, ours.__name__, ours.__defaults__, ours.__closure__)
    copy.__kwdefaults__ = ours.__kwdefaults__
    functools.update_wrapper(copy, ours)
    copy.__module__, copy.__qualname__ = path, name
    return copy


# ---- replacing -------------------------------------------------------------------------------------------


class _Calls(types.SimpleNamespace):
    """Replaces a library's object that has functions as attributes."""

    def __getattr__(self, name):
        raise AttributeError(f"smelt: the library is not installed, and smelt has no replacement for its {name}")


def _apply(modules: dict[str, types.ModuleType]) -> None:
    """Replaces the table's names in these modules, and references to the originals in all other modules."""
    made: list[_Site] = []
    names = [(module, path, *each) for path, module in modules.items() for each in _wanted[path].items()]
    for module, path, name, entry in names:
        if not isinstance(entry, Namespace):
            _replace(module, path, name, entry, made)
            continue
        try:
            holder = getattr(module, name)
        except (AttributeError, ImportError):  # it is missing, or needs a package that is not installed
            holder = _Calls()
            _put(_Site(path, name, module, _ABSENT, holder), made)
        for each, reference in entry.names.items():
            _replace(holder, f"{path}.{name}", each, reference, made)
    found = {id(site.original): site for site in made if _is_its_own(site)}
    for where, names, name in _bindings(found):
        site = found[id(names[name])]
        names[name] = site.ours
        site.places.append(f"{where}.{name}")
    for site in made:
        logger.info("smelt: replaced %s", ", ".join([str(site), *site.places]))
    for site, held in _holders([site for site in found.values() if not isinstance(site.original, type)]):
        logger.warning("smelt: %s", held)
        _held.setdefault(site, []).append(held)


def _is_its_own(site: _Site) -> bool:
    """Whether an original is defined in the package in which it was replaced; other packages keep theirs."""
    package = site.path.partition(".")[0]
    home = (getattr(site.original, "__module__", None) or "").partition(".")[0]
    return callable(site.original) and (home == package or _is_optional(package))


def _replace(holder, path: str, name: str, reference, made: list[_Site]) -> None:
    original = vars(holder).get(name, _ABSENT)
    known = _sites.get((path, name))
    if any(original is site.ours for site in _sites.values() if callable(site.ours)):
        return  # replaced already, here or through another entry of the table
    if known and known.holder is holder and original is known.ours:
        return  # a flag
    if known:
        _former.append(known)
    if original is True:  # a flag that this module imported from another one, in which it was set before
        package = path.partition(".")[0]
        same = [each for each in _sites.values() if each.name == name and each.path.startswith(package + ".")]
        original = same[0].original if same else original
    _put(_Site(path, name, holder, original, _copy(reference, path, name)), made)


def _put(site: _Site, made: list[_Site]) -> None:
    setattr(site.holder, site.name, site.ours)
    _sites[site.path, site.name] = site
    made.append(site)


def _bindings(found: dict[int, _Site]):
    """Yields (module's name, its dict, name) for each name that is bound to one of these objects, given by id."""
    if not found:
        return
    for where, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict) and not found.keys().isdisjoint(map(id, list(names.values()))):
            for name, value in list(names.items()):
                if id(value) in found:
                    yield where, names, name


def _holders(sites: list[_Site]) -> list[tuple[_Site, str]]:
    """Other objects that still refer to an original (registries, classes, partial functions, closures)."""
    alone = sys.getrefcount(_ALONE.original)
    sites = [site for site in sites if sys.getrefcount(site.original) > alone]  # gc.get_referrers visits all objects
    originals, found = {id(site.original): site for site in sites}, {}
    for referrer in gc.get_referrers(*(site.original for site in sites)) if sites else ():
        if not isinstance(referrer, (_Site, types.FrameType)):
            for held in gc.get_referents(referrer):
                site = originals.get(id(held))
                if site is not None:
                    found[id(referrer), id(held)] = site, f"{_described(referrer, held)} still holds the original {site}"
    return list(found.values())


def _described(referrer: object, original: object) -> str | None:
    if isinstance(referrer, types.CellType):
        return "a closure"
    if not isinstance(referrer, dict):
        return f"a {type(referrer).__qualname__}"
    key = next(key for key, value in referrer.items() if value is original)
    for owner in gc.get_referrers(referrer):
        if isinstance(owner, type):
            return f"{owner.__module__}.{owner.__qualname__}.{key}"
        if isinstance(owner, types.FunctionType) and owner.__dict__ is referrer:
            return f"{owner.__module__}.{owner.__qualname__}.{key}"
    return f"a dict, under the key {key!r},"


# ---- modules that are imported later ---------------------------------------------------------------------


class _Hook:
    """Runs a module's own loader, then replaces names."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec) if hasattr(self.loader, "create_module") else None

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        try:
            self.loader.exec_module(module)
        except (ImportError, OSError, RuntimeError) as error:
            if not _is_kernel(module.__name__):
                raise
            _stand_in(module, f"{type(error).__name__}: {error}")
        _imported(module)


class _Nothing:
    """The loader of a module of a library that is not installed."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        _stand_in(module, "it is not installed")
        _imported(module)


def _stand_in(module: types.ModuleType, why: str) -> None:
    def __getattr__(name):
        raise AttributeError(
            f"smelt: {module.__name__} has no {name}, because it cannot be imported ({why})"
        )

    module.__getattr__ = __getattr__
    with _lock:
        _without[module.__name__] = why
    logger.info("smelt: %s cannot be imported (%s): it has only smelt's functions", module.__name__, why)


def _imported(module: types.ModuleType) -> None:
    with _lock:
        if module.__name__ in _wanted:
            _apply({module.__name__: module})


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in _wanted:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Hook(spec.loader)
                return spec
        if not _is_optional(name):
            return None
        return importlib.machinery.ModuleSpec(name, _Nothing(), is_package=True)


_finder = _Finder()


# ---- what is called ------------------------------------------------------------------------------------


def install(*names: str) -> Report:
    """Replaces the kernels of these trainers and libraries ("nemo", "megatron", "slime", "miles", "prime_rl", "veomni",
    "xtuner"; "flash_mla", "flash_msa", "cudnn", "deep_gemm") with smelt's functions, before or after they are imported,
    also in modules that imported them by name. One call is enough; it includes a trainer's libraries. Neither the
    libraries nor the packages that a trainer's kernels need (TileLang) have to be installed. Returns what was replaced
    and what still holds an original; the logger "smelt_kernels.compat" reports later imports."""
    _check(names)
    if not names:
        raise ValueError(f"smelt: install needs at least one name: {', '.join(sorted(TRAINERS))}")
    with _lock:
        _active.update(dict.fromkeys(names))
        _update()
        wanted = _modules(names)
        sites = [site for (path, name), site in _sites.items() if _wants(wanted, path, name)]
        return Report(
            replaced=[each for site in sites for each in (str(site), *site.places)],
            waiting=[path for path in wanted if path not in sys.modules],
            without={path: why for path, why in _without.items() if path in wanted},
            held=[held for site in sites for held in _held.get(site, ())],
        )


def _update() -> None:
    """Replaces names in the modules that are already imported; the finder handles later ones."""
    _wanted.clear()
    _wanted.update(_modules(_active))
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    if _active:
        sys.meta_path.insert(0, _finder)
    imported = {path: sys.modules.get(path) for path in _wanted}
    _apply({path: module for path, module in imported.items() if isinstance(module, types.ModuleType)})


def uninstall(*names: str) -> list[str]:
    """Restores the originals of these trainers and libraries, or of all. Returns the names that still hold smelt's
    function because there is no original to restore."""
    _check(names)
    with _lock:
        for name in names or tuple(_active):
            _active.pop(name, None)
        wanted = _modules(_active)
        gone = [site for site in (*_former, *_sites.values()) if not _wants(wanted, site.path, site.name)]
        kept = _restore(gone)
        _former[:] = [site for site in _former if site not in gone]
        for site in gone:
            _sites.pop((site.path, site.name), None)
            _held.pop(site, None)
        for path in [path for path in _without if path not in wanted]:
            _forget(path)
        _update()
        return kept


def _wants(wanted: dict[str, Names], path: str, name: str) -> bool:
    module, _, attribute = path.rpartition(".")
    return name in wanted.get(path, ()) or isinstance(wanted.get(module, {}).get(attribute), Namespace)


def _restore(gone: list[_Site]) -> list[str]:
    for site in gone:
        if vars(site.holder).get(site.name, _ABSENT) is not site.ours:
            continue
        if site.original is _ABSENT:
            delattr(site.holder, site.name)
        else:
            setattr(site.holder, site.name, site.original)
    kept = []
    found = {id(site.ours): site for site in gone if callable(site.ours)}
    for where, names, name in _bindings(found):
        site = found[id(names[name])]
        if site.original is _ABSENT:
            kept.append(f"{where}.{name}")
            logger.warning("smelt: %s.%s keeps smelt's %s: there is no original to restore", where, name, site)
        else:
            names[name] = site.original
    return kept


def _forget(path: str) -> None:
    """Removes a module that has only smelt's functions: the next import makes a new one, or fails as before."""
    del _without[path]
    module = sys.modules.pop(path, None)
    parent, _, name = path.rpartition(".")
    if vars(sys.modules.get(parent, types.SimpleNamespace())).get(name) is module is not None:
        delattr(sys.modules[parent], name)
