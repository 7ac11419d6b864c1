"""The bypass for one model only.

Each module of the model gets a class derived from its own, whose calls run inside of a scoped bypass. The
instances, their parameters, hooks, parametrisations and state-dict keys stay as they are, and ``isinstance``
holds. Deep copies and DataParallel replicas are patched too; a pickle holds the former classes.
"""

from __future__ import annotations

import copy
import copyreg
import weakref
from functools import cache
from typing import Any, cast

import torch
from torch.nn.utils import parametrize

from rocmprobe.bypass.locks import lock_across_forks
from rocmprobe.bypass.scope import ScopedInterceptor, entered

_lock = lock_across_forks()
#: The living modules behind each interceptor that was added.
_users: dict[ScopedInterceptor, weakref.WeakSet[torch.nn.Module]] = {}


class _Patched:
    """What the derived classes have in common."""

    _bypass_layer: ScopedInterceptor
    _bypass_former: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # As what it was: modules have copy protocols of their own.
        layer, derived, former = self._bypass_layer, _derived_of(self), self._bypass_former
        _replace(self, derived, former)
        try:
            copied = copy.deepcopy(self, memo)
        finally:
            _replace(self, former, derived)
        with _lock:
            if layer in _users and isinstance(copied, torch.nn.Module):
                _replace(copied, former, derived)
                _users[layer].add(copied)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        create, arguments, *rest = cast(tuple[Any, ...], super().__reduce_ex__(protocol))
        if arguments != (type(self),):
            return (create, arguments, *rest)
        # A class that is made while the program runs cannot be found by its name when the pickle is read.
        return (cast(Any, copyreg)._reconstructor, (self._bypass_former, object, None), *rest)


@cache
def _call() -> Any:
    """``__call__`` of the derived classes."""

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(self, _Patched):
            # torch.compile keeps the method of a model that has been restored since.
            return self(*arguments, **options)
        with entered(self._bypass_layer):
            return self._bypass_former.__call__(self, *arguments, **options)

    if hasattr(torch, "compiler"):
        # A compiled call would leave the scope at once and run its graph afterwards, so that convolutions
        # would go native in silence. What is called inside may well be compiled.
        return cast(Any, torch.compiler).disable(call, recursive=False)
    return call


def patch_model(model: torch.nn.Module, layer: ScopedInterceptor) -> None:
    """Let every convolution that ``model`` or a module in it computes go through ``layer``.

    Raises:
        TypeError: for something that is no module, or a scripted one, which runs outside of Python.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"patch takes a torch.nn.Module, not {type(model).__name__}")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise TypeError("a scripted module runs outside of Python; use install() or enabled() for it")
    with _lock:
        _restore(model)
        modules = list(model.modules())
        formers = [_patched_class(module) for module in modules]
        classes = {former: _derived(former, layer) for former in formers}
        layer.lay()
        _users[layer] = weakref.WeakSet(modules)
        for module, former in zip(modules, formers):
            _replace(module, former, classes[former])
        _lift_the_idle()


def unpatch_model(model: torch.nn.Module) -> None:
    """Undo :func:`patch_model`; what is not patched is left alone."""
    with _lock:
        _restore(model)
        _lift_the_idle()


def _restore(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, _Patched):
            _users.get(module._bypass_layer, weakref.WeakSet()).discard(module)
            _replace(module, _derived_of(module), module._bypass_former)


def _patched_class(module: torch.nn.Module) -> type:
    """The class to derive from: below the one that PyTorch makes for a parametrisation, which has to stay on
    top, where it is looked for."""
    return type(module).__bases__[0] if parametrize.is_parametrized(module) else type(module)


def _derived_of(module: Any) -> type:
    return next(each for each in type(module).__mro__ if "_bypass_former" in vars(each))


def _replace(module: Any, old: type, new: type) -> None:
    """Exchange the class of ``module``, or the base of the one that has been put on top of it."""
    top = type(module)
    if top is old:
        module.__class__ = new
        return
    # A copy: deep copies of a parametrised module share their class with it.
    names = {name: value for name, value in vars(top).items() if name not in ("__dict__", "__weakref__")}
    module.__class__ = type(
        top.__name__, tuple(new if each is old else each for each in top.__bases__), names
    )


def _lift_the_idle() -> None:
    # Of a model that was dropped while patched this is the first news.
    for layer in [layer for layer, modules in _users.items() if not modules]:
        del _users[layer]
        layer.lift()


def _derived(former: type, layer: ScopedInterceptor) -> type:
    return type(
        former.__name__,
        (_Patched, former),
        {
            "__module__": former.__module__, "__qualname__": former.__qualname__, "__doc__": former.__doc__,
            "__call__": _call(), "_bypass_layer": layer, "_bypass_former": former,
        },
    )  # fmt: skip
