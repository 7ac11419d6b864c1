// The sum of what several blocks found for the same values, always in the same order.
//
// partial[split][value] in float gives the values of a tensor of any strides, one thread for each. A bias has one value
// for each channel.

KERNEL(sum_splits, 256, ReduceArguments) {
    const ReduceArguments& a = arguments;
    const int value = BLOCK_X * 256 + THREAD;
    if (value >= a.values) return;
    const float* partial = (const float*)a.partial + value;
    float sum = 0.0f;
    UNROLL(8)
    for (int split = 0; split < a.splits; split++, partial += a.values) sum += *partial;
    if (a.bias) {
        unsigned outer = divided(value, a.of_channel);
        sum += widened(((const Storage*)a.bias)[take_remainder(outer, a.channels)]);
    }
    unsigned rest = value;
    unsigned offset = 0;
    UNROLL_WHOLLY
    for (int dimension = 4; dimension > 0; dimension--) {
        // The host has merged dimensions; those that are left over have one position.
        if (a.sizes[dimension].value == 1) continue;
        offset += take_remainder(rest, a.sizes[dimension]) * a.strides[dimension];
    }
    offset += rest * a.strides[0];
    ((Storage*)a.target)[offset] = stored(sum);
}
