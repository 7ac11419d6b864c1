"""``rocmprobe table``: the results of many machines in one table, read file by file in bounded memory."""
