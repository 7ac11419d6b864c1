// bwd-weights as a product of matrices: partial[row, column] = sum over pixels of feature[row, pixel] * image[column, pixel].
// A row is a filter, a column a channel and a tap, a pixel a window in a sample. Each block sums some of the pixels;
// the sums of all are added afterwards, always in the same order.
//
// The pixels of a period, one or more whole samples, have a table: where they lie, and for every tap of each
// dimension a bit that says whether it lies inside. Each column asks for three of them. Where the taps of the three
// dimensions are more than 31, there is a second table, of positions (WIDE).

struct alignas(16) Pixel { unsigned feature, image, inside, unused; };
struct alignas(16) Corner { int z, y, x, unused; };

KERNEL(weights_table, 64, WeightsTableArguments) {
    const WeightsTableArguments& a = arguments;
    const int index = BLOCK_X * 64 + THREAD;
    if (index >= a.period) return;
    const int windows = a.windows[0] * a.windows[1] * a.windows[2];
    const int sample = index / windows, window = index % windows;
    const int x = window % a.windows[2], y = window / a.windows[2] % a.windows[1];
    const int z = window / a.windows[2] / a.windows[1];
    Corner corner;
    corner.z = z * a.stride[0] - a.padding[0];
    corner.y = y * a.stride[1] - a.padding[1];
    corner.x = x * a.stride[2] - a.padding[2];
    corner.unused = 0;
    Pixel pixel;
    pixel.feature = sample * a.feature_sample + z * a.feature_bytes[0] + y * a.feature_bytes[1] + x * a.feature_bytes[2];
    // What lies before the image has an offset below zero, which the offset of a tap inside makes up for.
    pixel.image = sample * a.image_sample + (unsigned)corner.z * a.image_bytes[0] +
                  (unsigned)corner.y * a.image_bytes[1] + (unsigned)corner.x * a.image_bytes[2];
    pixel.inside = 0;
    pixel.unused = 0;
    if (a.corners) {
        ((Corner*)a.corners)[index] = corner;
    } else {
        unsigned bit = 1;
        for (int i = 0; i < a.taps[0]; i++, bit <<= 1)
            if ((unsigned)(corner.z + i * a.dilation[0]) < (unsigned)a.sizes[0]) pixel.inside |= bit;
        for (int i = 0; i < a.taps[1]; i++, bit <<= 1)
            if ((unsigned)(corner.y + i * a.dilation[1]) < (unsigned)a.sizes[1]) pixel.inside |= bit;
        for (int i = 0; i < a.taps[2]; i++, bit <<= 1)
            if ((unsigned)(corner.x + i * a.dilation[2]) < (unsigned)a.sizes[2]) pixel.inside |= bit;
    }
    ((Pixel*)a.pixels)[index] = pixel;
}

template <int ROWS, int COLUMNS, int DEPTH, int THREADS, bool WIDE>
DEVICE void weights_gemm(const WeightsArguments& a) {
    constexpr int STEP = THREADS / DEPTH;  // lines between the loads of a thread
    constexpr int A_LOADS = ROWS / STEP, B_LOADS = COLUMNS / STEP;
    constexpr int A_STRIDE = ROWS + 4, B_STRIDE = COLUMNS + 4;  // so that what a wave writes lies in different banks
    SHARED Float4 a_tile[2][DEPTH][A_STRIDE / 4];
    SHARED Float4 b_tile[2][DEPTH][B_STRIDE / 4];

    const int group = (int)((unsigned)BLOCK_Z / (unsigned)a.splits), split = BLOCK_Z - group * a.splits;
    const int row_0 = BLOCK_Y * ROWS, column_0 = BLOCK_X * COLUMNS;
    const char* feature = (const char*)a.feature + (long long)group * a.feature_group;
    const char* image = (const char*)a.image + (long long)group * a.image_group;
    const Pixel* pixels = (const Pixel*)a.pixels;
    const Corner* corners = (const Corner*)a.corners;
    const int lane = THREAD % DEPTH, line = THREAD / DEPTH;

    // Lines beyond the last are read as the first one is, and their sums are not written.
    unsigned a_offset[A_LOADS];
    UNROLL_WHOLLY
    for (int i = 0; i < A_LOADS; i++) {
        const int row = row_0 + line + i * STEP;
        a_offset[i] = (row < a.rows ? row : 0) * a.feature_row;
    }
    unsigned b_offset[B_LOADS], b_wanted[B_LOADS];
    UNROLL_WHOLLY
    for (int i = 0; i < B_LOADS; i++) {
        const unsigned column = column_0 + line + i * STEP < a.columns ? column_0 + line + i * STEP : 0;
        const unsigned channel = divided(column, a.multipliers[0], a.shifts[0]);
        const unsigned tap = column - channel * a.divisors[0];
        const unsigned z = divided(tap, a.multipliers[1], a.shifts[1]);
        const unsigned in_plane = tap - z * a.divisors[1];
        const unsigned y = divided(in_plane, a.multipliers[2], a.shifts[2]);
        const unsigned x = in_plane - y * a.divisors[2];
        b_offset[i] = channel * a.image_row + z * a.tap_bytes[0] + y * a.tap_bytes[1] + x * a.tap_bytes[2];
        if (WIDE)
            b_wanted[i] = z * a.dilation[0] << 22 | y * a.dilation[1] << 11 | x * a.dilation[2];
        else
            b_wanted[i] = 1u << z | 1u << (a.taps[0] + y) | 1u << (a.taps[0] + a.taps[1] + x);
    }

    const int first = split * a.split_depth;
    const int left = a.depth - first;
    const int end = left < a.split_depth ? a.depth : first + a.split_depth;
    int own = first + lane;
    const unsigned periods = divided(own, a.period_multiplier, a.period_shift);
    int index = own - periods * a.period;
    unsigned feature_base = periods * a.feature_period, image_base = periods * a.image_period;
    Pixel pixel = pixels[index];
    Corner corner = {};
    if (WIDE) corner = corners[index];

    Storage a_next[A_LOADS], b_next[B_LOADS];
    bool b_inside[B_LOADS], a_inside;

    auto load = [&]() __attribute__((always_inline)) {
        a_inside = own < end;
        const unsigned feature_offset = a_inside ? feature_base + pixel.feature : 0u;
        const unsigned image_offset = image_base + pixel.image;
        const unsigned inside = a_inside ? pixel.inside : 0u;  // which no column asks for
        UNROLL_WHOLLY
        for (int i = 0; i < A_LOADS; i++) a_next[i] = *(const Storage*)(feature + (feature_offset + a_offset[i]));
        UNROLL_WHOLLY
        for (int i = 0; i < B_LOADS; i++) {
            if (WIDE)
                b_inside[i] = a_inside &
                              ((unsigned)(corner.z + (int)(b_wanted[i] >> 22)) < (unsigned)a.sizes[0]) &
                              ((unsigned)(corner.y + (int)(b_wanted[i] >> 11 & 2047)) < (unsigned)a.sizes[1]) &
                              ((unsigned)(corner.x + (int)(b_wanted[i] & 2047)) < (unsigned)a.sizes[2]);
            else
                b_inside[i] = (inside & b_wanted[i]) == b_wanted[i];
            unsigned offset = b_inside[i] ? image_offset + b_offset[i] : 0u;
            if (WIDE) AS_ONE_REGISTER(offset);
            b_next[i] = *(const Storage*)(image + offset);
        }
        own += DEPTH;
        index += DEPTH;
        const bool over = index >= a.period;
        index -= over ? a.period : 0;
        feature_base += over ? a.feature_period : 0u;
        image_base += over ? a.image_period : 0u;
        pixel = pixels[index];
        if (WIDE) corner = corners[index];
    };
    // After the sums of the block before: until then nobody waits for what was loaded.
    auto keep = [&](int buffer) __attribute__((always_inline)) {
        UNROLL_WHOLLY
        for (int i = 0; i < A_LOADS; i++)
            ((float*)a_tile[buffer][lane])[line + i * STEP] = a_inside ? widened(a_next[i]) : 0.0f;
        UNROLL_WHOLLY
        for (int i = 0; i < B_LOADS; i++)
            ((float*)b_tile[buffer][lane])[line + i * STEP] = b_inside[i] ? widened(b_next[i]) : 0.0f;
    };

    const int a_quad = THREAD / (COLUMNS / 8), b_quad = THREAD % (COLUMNS / 8);
    float sums[8][8] = {};
    int buffer = 0;
    load();
    keep(0);
    BARRIER();
    for (int p = first + DEPTH; p < end; p += DEPTH) {
        load();
        multiply<ROWS, COLUMNS, DEPTH, A_STRIDE / 4, B_STRIDE / 4>(
            &a_tile[buffer][0][a_quad], &b_tile[buffer][0][b_quad], sums);
        buffer ^= 1;
        keep(buffer);
        BARRIER();
    }
    multiply<ROWS, COLUMNS, DEPTH, A_STRIDE / 4, B_STRIDE / 4>(
        &a_tile[buffer][0][a_quad], &b_tile[buffer][0][b_quad], sums);

    const int row = row_0 + a_quad * 4, column = column_0 + b_quad * 4;
    float* partial = (float*)a.partial + ((long long)split * a.groups + group) * a.rows * a.columns;
    UNROLL_WHOLLY
    for (int i = 0; i < 8; i++) {
        const int own_row = row + i % 4 + i / 4 * (ROWS / 2);
        if (own_row >= a.rows) continue;
        UNROLL_WHOLLY
        for (int j = 0; j < 8; j++) {
            const int own_column = column + j % 4 + j / 4 * (COLUMNS / 2);
            if (own_column < a.columns) partial[(unsigned)(own_row * a.columns + own_column)] = sums[i][j];
        }
    }
}

#define WEIGHTS_GEMM(name, rows, columns, depth, threads, wide) \
    KERNEL(name, threads, WeightsArguments) { weights_gemm<rows, columns, depth, threads, wide>(arguments); }

WEIGHTS_GEMM(weights_gemm_128x128x8, 128, 128, 8, 256, false)
WEIGHTS_GEMM(weights_gemm_128x64x8, 128, 64, 8, 128, false)
WEIGHTS_GEMM(weights_gemm_64x128x8, 64, 128, 8, 128, false)
WEIGHTS_GEMM(weights_gemm_64x64x8, 64, 64, 8, 64, false)
WEIGHTS_GEMM(weights_gemm_128x32x8, 128, 32, 8, 64, false)
WEIGHTS_GEMM(weights_gemm_wide_128x64x8, 128, 64, 8, 128, true)
