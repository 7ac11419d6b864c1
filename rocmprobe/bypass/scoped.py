"""Bypass for one model or one call, active only in the calling thread.

Each module of a patched model gets a derived class, whose ``__call__`` activates the bypass.
"""

from __future__ import annotations

import atexit
import copy
import copyreg
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Callable, cast

import torch
import torch.nn.functional as F
from torch.nn.utils import parametrize

from rocmprobe.bypass import dispatch, registration
from rocmprobe.bypass.calls import ConvolutionCall
from rocmprobe.bypass.choice.settings import algorithm_or_default, workspace_or_default
from rocmprobe.bypass.interceptor import BypassInterceptor
from rocmprobe.bypass.operators import lock_across_forks

_DEVICE_TYPES = ("cpu", "cuda")

_local = threading.local()


class ScopedInterceptor(BypassInterceptor):
    """Bypass interceptor that is active only inside :func:`activate`, in place of an installed bypass."""

    rank = 2
    #: True after a convolution inside :func:`activate`.
    used = False

    def __init__(self, workspace_mb: float, algorithm: str) -> None:
        super().__init__(workspace_mb, algorithm, keeps_backward=True)

    def acts(self) -> bool:
        entered: tuple[ScopedInterceptor, ...] = getattr(_local, "entered", ())
        return bool(entered) and entered[-1] is self

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        self.used = True
        return super().convolution(call, proceed)

    def add(self) -> None:
        """Add the interceptor for every device type."""
        for device_type in _DEVICE_TYPES:
            registration.add_interceptor(self, device_type)

    def remove(self) -> None:
        """Remove the interceptor for every device type."""
        for device_type in _DEVICE_TYPES:
            registration.remove_interceptor(self, device_type)


@contextmanager
def activate(interceptor: ScopedInterceptor) -> Iterator[None]:
    """Activate ``interceptor`` in this thread during a ``with`` block."""
    outer: tuple[ScopedInterceptor, ...] = getattr(_local, "entered", ())
    _local.entered = (*outer, interceptor)
    try:
        yield
    finally:
        _local.entered = outer


@cache
def _interceptor() -> ScopedInterceptor:
    interceptor = ScopedInterceptor(workspace_or_default(None), algorithm_or_default(None))
    interceptor.add()
    return interceptor


def _by_bypass(function: Callable[..., Any]) -> Callable[..., Any]:
    def convolve(*arguments: Any, **options: Any) -> Any:
        with activate(_interceptor()):
            return function(*arguments, **options)

    convolve.__name__ = convolve.__qualname__ = function.__name__
    convolve.__doc__ = f"``torch.nn.functional.{function.__name__}``, computed by the bypass."
    return convolve


# These functions have the same arguments, results and errors as those in ``torch.nn.functional``. Workspace
# and algorithm are the defaults of :func:`rocmprobe.bypass.install` at the time of the first call.
conv1d = _by_bypass(F.conv1d)
conv2d = _by_bypass(F.conv2d)
conv3d = _by_bypass(F.conv3d)
conv_transpose1d = _by_bypass(F.conv_transpose1d)
conv_transpose2d = _by_bypass(F.conv_transpose2d)
conv_transpose3d = _by_bypass(F.conv_transpose3d)


_lock = lock_across_forks()
#: Patched modules that still exist, keyed by interceptor.
_users: dict[ScopedInterceptor, weakref.WeakSet[torch.nn.Module]] = {}


class _Patched:
    """Mixin for the classes of patched modules."""

    _bypass_interceptor: ScopedInterceptor
    _bypass_former: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # Copy the module with its former class, because this class can define how to copy it.
        interceptor, derived, former = self._bypass_interceptor, _derived_of(self), self._bypass_former
        _replace(self, derived, former)
        try:
            copied = copy.deepcopy(self, memo)
        finally:
            _replace(self, former, derived)
        with _lock:
            if interceptor in _users and isinstance(copied, torch.nn.Module):
                _replace(copied, former, derived)
                _users[interceptor].add(copied)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        create, arguments, *rest = cast(tuple[Any, ...], super().__reduce_ex__(protocol))
        if arguments != (type(self),):
            return (create, arguments, *rest)
        # When a pickle is read, a class that was made at run time cannot be found by its name.
        return (cast(Any, copyreg)._reconstructor, (self._bypass_former, object, None), *rest)


@cache
def _call() -> Any:

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(self, _Patched):
            # torch.compile can call this method even after the model was unpatched.
            return self(*arguments, **options)
        with activate(self._bypass_interceptor):
            return self._bypass_former.__call__(self, *arguments, **options)

    if hasattr(torch, "compiler"):
        # A compiled call would leave ``activate`` at once and run its graph later, so convolutions would
        # silently run without the bypass. Functions that the call runs can still be compiled.
        return cast(Any, torch.compiler).disable(call, recursive=False)
    return call


def patch_model(model: torch.nn.Module, interceptor: ScopedInterceptor) -> None:
    """Run the convolutions of ``model`` through ``interceptor``.

    Raises:
        TypeError: if ``model`` is not a module, or contains a scripted module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"patch requires a torch.nn.Module, not {type(model).__name__}")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise TypeError("a scripted module runs outside of Python; use install() or enabled() for it")
    with _lock:
        _restore(model)
        modules = list(model.modules())
        formers = [_patched_class(module) for module in modules]
        classes = {former: _derived(former, interceptor) for former in formers}
        interceptor.add()
        _users[interceptor] = weakref.WeakSet(modules)
        _register_warning()
        for module, former in zip(modules, formers):
            _replace(module, former, classes[former])
        _remove_unused()


@cache
def _register_warning() -> None:
    atexit.register(_warn_if_unused)


def _warn_if_unused() -> None:
    """Warn if a patched model ran no convolution while other convolutions ran without the bypass."""
    if dispatch.ran_natively() and not all(interceptor.used for interceptor in _users):
        warnings.warn(
            "rocmprobe.bypass.patch(model): the patched model ran no convolution, but others ran without the "
            "bypass. Does a library build a new model? Use rocmprobe.bypass.install()",
            RuntimeWarning,
            stacklevel=1,
        )


def unpatch_model(model: torch.nn.Module) -> None:
    """Undo :func:`patch_model`."""
    with _lock:
        _restore(model)
        _remove_unused()


def _restore(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, _Patched):
            _users.get(module._bypass_interceptor, weakref.WeakSet()).discard(module)
            _replace(module, _derived_of(module), module._bypass_former)


def _patched_class(module: torch.nn.Module) -> type:
    """Return the class of ``module``, or for a parametrised module, its class before parametrisation."""
    return type(module).__bases__[0] if parametrize.is_parametrized(module) else type(module)


def _derived_of(module: Any) -> type:
    return next(each for each in type(module).__mro__ if "_bypass_former" in vars(each))


def _replace(module: Any, old: type, new: type) -> None:
    """Change the class of ``module`` from ``old`` to ``new``."""
    top = type(module)
    if top is old:
        module.__class__ = new
        return
    # Change a copy of the class, because a parametrised module and its deep copies share one class.
    names = {name: value for name, value in vars(top).items() if name not in ("__dict__", "__weakref__")}
    module.__class__ = type(
        top.__name__, tuple(new if each is old else each for each in top.__bases__), names
    )


def _remove_unused() -> None:
    # Remove interceptors of garbage-collected models here, because garbage collection does not remove them.
    for interceptor in [interceptor for interceptor, modules in _users.items() if not modules]:
        del _users[interceptor]
        interceptor.remove()


def _derived(former: type, interceptor: ScopedInterceptor) -> type:
    return type(
        former.__name__,
        (_Patched, former),
        {
            "__module__": former.__module__, "__qualname__": former.__qualname__, "__doc__": former.__doc__,
            "__call__": _call(), "_bypass_interceptor": interceptor, "_bypass_former": former,
        },
    )  # fmt: skip
