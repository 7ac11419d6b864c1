// The smallest question: does a compiled kernel load, run and write what it should?

KERNEL(write_indices, 64, ProbeArguments) {
    const int index = BLOCK_X * 64 + THREAD;
    if (index < arguments.count) ((int*)arguments.target)[index] = index + arguments.start;
}
