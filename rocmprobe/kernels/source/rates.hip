// What the device does at its best: multiply-adds in registers, and copies.

KERNEL(multiply_adds, 256, RatesArguments) {
    // Eight sums that do not wait for each other.
    float sums[8];
    UNROLL(8)
    for (int i = 0; i < 8; i++) sums[i] = (float)(THREAD & 7);
    for (int round = 0; round < arguments.rounds; round++) {
        UNROLL(8)
        for (int step = 0; step < 8; step++) {
            UNROLL(8)
            for (int i = 0; i < 8; i++)
                sums[i] = MULTIPLY_ADD(sums[i], arguments.factor, arguments.summand);
        }
    }
    float total = 0;
    UNROLL(8)
    for (int i = 0; i < 8; i++) total += sums[i];
    ((float*)arguments.target)[BLOCK_X * 256 + THREAD] = total;
}

KERNEL(copy_values, 256, RatesArguments) {
    const Float4* source = (const Float4*)arguments.source;
    Float4* target = (Float4*)arguments.target;
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        const int index = BLOCK_X * 1024 + i * 256 + THREAD;
        if (index < arguments.count) target[index] = source[index];
    }
}
