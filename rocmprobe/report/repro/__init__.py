"""Scripts without rocmprobe, and MIOpenDriver command lines, that reproduce one outcome."""
