"""Entry point of ``rocmprobe`` and ``python -m rocmprobe``."""

# `signal` imports `enum`, and Ctrl-C would print a traceback from there.
import _signal
import os


def main() -> None:
    """Run the command line. While no command runs, Ctrl-C ends the process at once."""
    # Keep SIGINT ignored if it was ignored at the start, e.g. by nohup.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)
    from rocmprobe.cli import main as run_command

    run_command()


def _end(number: int, frame: object) -> None:
    # An exception would print the traceback of an import, or be lost in a destructor.
    os.write(2, b"rocmprobe: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
