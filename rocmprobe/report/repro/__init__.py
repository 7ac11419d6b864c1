"""One outcome as a script without rocmprobe, and as a command line for MIOpenDriver."""
