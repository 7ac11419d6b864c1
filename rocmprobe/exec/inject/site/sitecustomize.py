"""Code that runs first in each Python process of a program under ``rocmprobe exec`` or ``rocmprobe shapes``.

The code must work in every version of Python, without the packages that rocmprobe requires. It imports
rocmprobe only after torch.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_OLDEST = (3, 9)
#: Module objects of torch whose code has run. If this list is not empty, the next run is a reload of torch.
_executed = []  # type: list


class _TorchFinder:
    """Import finder that calls ``_prepare`` as soon as torch is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not _TorchFinder else None
            if spec is not None:
                # Ignore a folder named torch that is not the package. Its spec has no origin.
                if spec.origin and hasattr(spec.loader, "exec_module"):
                    _follow(spec.loader)
                return spec
        return None


def _follow(loader):
    execute = loader.exec_module

    def exec_module(module):
        try:
            execute(module)
        except BaseException:
            # A reload can fail halfway, e.g. with torch 2. Then the program continues with the same module.
            if module in _executed:
                _prepare(module)
            elif _executed:
                _give_up(RuntimeError("torch was loaded a second time"))
            raise
        _executed.append(module)
        _prepare(module)

    # Do not wrap the loader, because other code needs the loader's class to read resources or sources.
    loader.exec_module = exec_module


def _prepare(torch):
    """Apply the configuration to this process. If this fails, end the process."""
    try:
        if sys.version_info < _OLDEST:
            raise RuntimeError("Python " + sys.version.split()[0] + " is too old, 3.9 is the oldest")
        _own_package()
        from rocmprobe.exec.inject import prepare

        prepare(torch)
    except Exception as error:
        # Without the configuration, the program could hang the GPU.
        _give_up(error)


def _own_package():
    """Make ``rocmprobe`` importable, but no other package in its folder."""
    if "rocmprobe" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    place = os.path.join(_PACKAGE, "__init__.py")
    spec = spec_from_file_location("rocmprobe", place, submodule_search_locations=[_PACKAGE])
    if spec is None or spec.loader is None:
        raise ImportError(place)
    module = module_from_spec(spec)
    sys.modules["rocmprobe"] = module
    spec.loader.exec_module(module)


def _give_up(error):
    words = " ".join((type(error).__name__ + ": " + str(error)).split())
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - Python 2 has no suppress
            stream.flush()
        except Exception:  # noqa: S110 - closed or gone, and the process ends here anyway
            pass
    line = "rocmprobe: ended this program, because its configuration cannot be applied here: " + words
    os.write(2, (line + "\n").encode("utf-8", "replace"))
    # Do not raise. The program could catch the exception and continue without the configuration.
    os._exit(2)


def _start():
    if sys.version_info >= (3, 4) and _TorchFinder not in sys.meta_path:
        sys.meta_path.insert(0, _TorchFinder)
        if "torch" in sys.modules:
            _executed.append(sys.modules["torch"])
            _prepare(sys.modules["torch"])
    # Restore the path that the program and the user's sitecustomize would see without rocmprobe.
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or os.curdir) != _HERE]


_start()
del sys.modules["sitecustomize"]
# If the user has no sitecustomize, this import raises ImportError, as Python expects. Other errors come from
# the user's file.
import sitecustomize  # noqa: E402, F401
