"""Entry point of ``python -m rocmprobe``."""

from rocmprobe.cli import main

if __name__ == "__main__":
    main()
