// The sum of what several blocks found for the same values, always in the same order.
//
// partial[split][value] in float gives the values of a tensor of any strides, one thread for each.

KERNEL(sum_splits, 256, ReduceArguments) {
    const ReduceArguments& a = arguments;
    const int value = BLOCK_X * 256 + THREAD;
    if (value >= a.values) return;
    const float* partial = (const float*)a.partial + value;
    float sum = 0.0f;
    UNROLL(8)
    for (int split = 0; split < a.splits; split++, partial += a.values) sum += *partial;
    unsigned rest = value;
    unsigned offset = 0;
    UNROLL(4)
    for (int dimension = 4; dimension > 0; dimension--) {
        const unsigned size = a.sizes[dimension];
        const unsigned quotient = rest / size;
        offset += (rest - quotient * size) * a.strides[dimension];
        rest = quotient;
    }
    offset += rest * a.strides[0];
    ((Storage*)a.target)[offset] = stored(sum);
}
