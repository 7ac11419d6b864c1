"""Entry point of a child that is not forked.

Usage: ``python -m rocmprobe.worker COMMANDS_FD EVENTS_FD PARENT_PID``.
"""

import sys

from rocmprobe.lifetime import die_with_parent
from rocmprobe.worker.main import serve

if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))
    serve(int(sys.argv[1]), int(sys.argv[2]))
