// bwd-weights as a product of matrices: target[row, column] = sum over pixels of feature[row, pixel] * image[column, pixel].
// A row is a filter, a column a channel and a tap, a pixel a window in a sample. Each block sums some of the pixels.
// If the sums have one part, the target is the gradient. Otherwise it is the workspace, and the sums of all parts are
// added afterwards, always in the same order.
//
// The pixels of a period, one or more whole samples, have a table: where they lie, and for every tap of each
// dimension a bit that says whether it lies inside. Each column asks for three of them. Where the taps of the three
// dimensions are more than 31, there is a second table, of positions (WIDE). A block stages the entries of some steps
// at once in LDS, because all of its lines read the same pixels, and what its columns ask for.
//
// Of the feature, a thread reads four pixels of a row: one load where they lie next to each other everywhere. Of the
// image, neighbouring threads read neighbouring pixels of a column.

struct alignas(16) Pixel { unsigned feature, image, inside, unused; };
struct alignas(16) Corner { int z, y, x, unused; };
// Pixels that a block stages at once; the host makes a period at least as long.
#define STAGED_PIXELS 32
// The bit of a staged pixel that exists, its sign. No tap has it.
#define EXISTS (1u << 31)

KERNEL(weights_table, 64, WeightsTableArguments) {
    const WeightsTableArguments& a = arguments;
    const int index = BLOCK_X * 64 + THREAD;
    if (index >= a.period) return;
    unsigned rest = index;
    const int sample = take_quotient(rest, a.windows[0]), z = take_quotient(rest, a.windows[1]);
    const int y = take_quotient(rest, a.windows[2]), x = rest;
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

// The channel and the tap of a column.
struct ColumnPlace { unsigned channel, z, y, x; };
// The same as an offset in bytes, and as the bits or distances that a pixel is asked for.
struct alignas(8) ColumnTap { unsigned offset, wanted; };

DEVICE ColumnPlace column_place(const WeightsArguments& a, unsigned column) {
    ColumnPlace place;
    place.channel = take_quotient(column, a.divisors[0]);
    place.z = take_quotient(column, a.divisors[1]);
    place.y = take_quotient(column, a.divisors[2]);
    place.x = column;
    return place;
}

template <int ROWS, int COLUMNS, int DEPTH, int THREADS, bool WIDE>
DEVICE void weights_gemm(const WeightsArguments& a) {
    constexpr int A_STEP = THREADS / (DEPTH / 4), B_STEP = THREADS / DEPTH;  // lines between the loads of a thread
    constexpr int A_LOADS = ROWS / A_STEP, B_LOADS = COLUMNS / B_STEP;
    constexpr int A_STRIDE = ROWS + 4, B_STRIDE = COLUMNS + 4;  // so that what a wave writes lies in different banks
    SHARED Float4 a_tile[2][DEPTH / TERMS][A_STRIDE / 4];
    SHARED Float4 b_tile[2][DEPTH / TERMS][B_STRIDE / 4];
    constexpr int AHEAD = STAGED_PIXELS / DEPTH;  // steps whose pixels are staged at once
    SHARED Pixel pixel_tile[2][STAGED_PIXELS];
    SHARED Corner corner_tile[2][WIDE ? STAGED_PIXELS : 1];
    SHARED ColumnTap column_tile[COLUMNS];

    unsigned group = BLOCK_Z;
    const int split = take_remainder(group, a.splits);
    const int row_0 = BLOCK_Y * ROWS, column_0 = BLOCK_X * COLUMNS;
    const char* feature = (const char*)a.feature + (long long)group * a.feature_group;
    const char* image = (const char*)a.image + (long long)group * a.image_group;
    const int a_quad = THREAD % (DEPTH / 4) * 4, a_line = THREAD / (DEPTH / 4);
    const int b_lane = THREAD % DEPTH, b_line = THREAD / DEPTH;

    // Lines beyond the last are read as the first one is, and their sums are not written.
    unsigned a_offset[A_LOADS];
    UNROLL_WHOLLY
    for (int i = 0; i < A_LOADS; i++) {
        const int row = row_0 + a_line + i * A_STEP;
        a_offset[i] = (row < a.rows ? row : 0) * a.feature_row;
    }
    for (int line = THREAD; line < COLUMNS; line += THREADS) {
        const ColumnPlace place = column_place(a, column_0 + line < a.columns ? column_0 + line : 0);
        ColumnTap column;
        column.offset = place.channel * a.image_row + place.z * a.tap_bytes[0] + place.y * a.tap_bytes[1] +
                        place.x * a.tap_bytes[2];
        if (WIDE)
            column.wanted = place.z * a.dilation[0] << 22 | place.y * a.dilation[1] << 11 | place.x * a.dilation[2];
        else
            column.wanted = 1u << place.z | 1u << (a.taps[0] + place.y) | 1u << (a.taps[0] + a.taps[1] + place.x);
        column_tile[line] = column;
    }

    const int first = split * a.split_depth;
    const int left = a.depth - first;
    const int end = left < a.split_depth ? a.depth : first + a.split_depth;
    const int steps = (end - first + DEPTH - 1) / DEPTH;

    // The first threads fetch a pixel each, in steps of STAGED_PIXELS, and put it into LDS after the sums of a step.
    int own = first + THREAD;
    unsigned index = own;
    const unsigned periods = take_quotient(index, a.period);
    unsigned feature_base = periods * a.feature_period, image_base = periods * a.image_period;
    // Single values, since the compiler would keep a structure that lives across a loop in memory.
    unsigned fetched_feature = 0, fetched_image = 0, fetched_inside = 0;
    int fetched_z = 0, fetched_y = 0, fetched_x = 0;
    auto fetch = [&]() __attribute__((always_inline)) {
        if (THREAD >= STAGED_PIXELS) return;
        const Pixel pixel = ((const Pixel*)a.pixels)[index];
        const bool exists = own < end;
        fetched_feature = exists ? pixel.feature + feature_base : 0u;
        fetched_image = pixel.image + image_base;
        fetched_inside = exists ? pixel.inside | EXISTS : 0u;
        if (WIDE) {
            const Corner corner = ((const Corner*)a.corners)[index];
            // So far away that no column's tap lies inside.
            fetched_z = exists ? corner.z : -0x40000000;
            fetched_y = corner.y, fetched_x = corner.x;
        }
        own += STAGED_PIXELS;
        index += STAGED_PIXELS;
        const bool over = index >= a.period.value;
        index -= over ? a.period.value : 0;
        feature_base += over ? a.feature_period : 0u;
        image_base += over ? a.image_period : 0u;
    };
    auto stage = [&](int buffer) __attribute__((always_inline)) {
        if (THREAD >= STAGED_PIXELS) return;
        Pixel pixel;
        pixel.feature = fetched_feature, pixel.image = fetched_image, pixel.inside = fetched_inside, pixel.unused = 0;
        pixel_tile[buffer][THREAD] = pixel;
        if (WIDE) {
            Corner corner;
            corner.z = fetched_z, corner.y = fetched_y, corner.x = fetched_x, corner.unused = 0;
            corner_tile[buffer][THREAD] = corner;
        }
    };

    Storage a_next[A_LOADS][4], b_next[B_LOADS];
    bool b_inside[B_LOADS], a_inside[4];

    auto load = [&](int step) __attribute__((always_inline)) {
        const Pixel* pixels = pixel_tile[step / AHEAD & 1] + step % AHEAD * DEPTH;
        const Pixel pixel = pixels[b_lane];
        Corner corner = {};
        if (WIDE) corner = corner_tile[step / AHEAD & 1][step % AHEAD * DEPTH + b_lane];
        UNROLL_WHOLLY
        for (int k = 0; k < 4; k++) a_inside[k] = (int)pixels[a_quad + k].inside < 0;
        if (a.quads) {
            UNROLL_WHOLLY
            for (int i = 0; i < A_LOADS; i++) {
                const Storage* quad = (const Storage*)(feature + (pixels[a_quad].feature + a_offset[i]));
                UNROLL_WHOLLY
                for (int k = 0; k < 4; k++) a_next[i][k] = quad[k];
            }
        } else {
            UNROLL_WHOLLY
            for (int k = 0; k < 4; k++) {
                UNROLL_WHOLLY
                for (int i = 0; i < A_LOADS; i++)
                    a_next[i][k] = *(const Storage*)(feature + (pixels[a_quad + k].feature + a_offset[i]));
            }
        }
        UNROLL_WHOLLY
        for (int i = 0; i < B_LOADS; i++) {
            const ColumnTap column = column_tile[b_line + i * B_STEP];
            if (WIDE)
                b_inside[i] = ((unsigned)(corner.z + (int)(column.wanted >> 22)) < (unsigned)a.sizes[0]) &
                              ((unsigned)(corner.y + (int)(column.wanted >> 11 & 2047)) < (unsigned)a.sizes[1]) &
                              ((unsigned)(corner.x + (int)(column.wanted & 2047)) < (unsigned)a.sizes[2]);
            else
                b_inside[i] = (pixel.inside & column.wanted) == column.wanted;
            unsigned offset = b_inside[i] ? pixel.image + column.offset : 0u;
            if (WIDE) AS_ONE_REGISTER(offset);
            b_next[i] = *(const Storage*)(image + offset);
        }
    };
    // After the sums of the block before: until then nobody waits for what was loaded.
    auto keep = [&](int buffer) __attribute__((always_inline)) {
        UNROLL_WHOLLY
        for (int k = 0; k < 4; k++) {
            UNROLL_WHOLLY
            for (int i = 0; i < A_LOADS; i++)
                *term_place(a_tile[buffer], a_quad + k, a_line + i * A_STEP, A_STRIDE) =
                    a_inside[k] ? term_of(a_next[i][k]) : (Term)0.0f;
        }
        UNROLL_WHOLLY
        for (int i = 0; i < B_LOADS; i++)
            *term_place(b_tile[buffer], b_lane, b_line + i * B_STEP, B_STRIDE) =
                b_inside[i] ? term_of(b_next[i]) : (Term)0.0f;
    };

    const int row_quad = THREAD / (COLUMNS / 8), column_quad = THREAD % (COLUMNS / 8);
    float sums[8][8] = {};
    int buffer = 0;
    fetch();
    stage(0);
    BARRIER();
    load(0);
    keep(0);
    BARRIER();
    for (int step = 1; step < steps; step++) {
        // Early enough that a barrier lies between the staging and the first step that reads the pixels.
        const bool fetching = step % AHEAD == 1 && (step / AHEAD + 1) * AHEAD < steps;
        if (fetching) fetch();
        load(step);
        multiply<ROWS, COLUMNS, DEPTH, A_STRIDE / 4, B_STRIDE / 4>(
            &a_tile[buffer][0][row_quad], &b_tile[buffer][0][column_quad], sums);
        buffer ^= 1;
        keep(buffer);
        if (fetching) stage(step / AHEAD + 1 & 1);
        BARRIER();
    }
    multiply<ROWS, COLUMNS, DEPTH, A_STRIDE / 4, B_STRIDE / 4>(
        &a_tile[buffer][0][row_quad], &b_tile[buffer][0][column_quad], sums);

    const int row = row_0 + row_quad * 4, column = column_0 + column_quad * 4;
    char* target = (char*)a.target + split * a.target_split + group * a.target_group;
    UNROLL_WHOLLY
    for (int j = 0; j < 8; j++) {
        const int own_column = column + j % 4 + j / 4 * (COLUMNS / 2);
        if (own_column >= a.columns) continue;
        const ColumnPlace place = column_place(a, own_column);
        const unsigned offset = row * a.target_row + place.channel * a.target_channel + place.z * a.target_taps[0] +
                                place.y * a.target_taps[1] + place.x * a.target_taps[2];
        UNROLL_WHOLLY
        for (int i = 0; i < 8; i++) {
            const int further = i % 4 + i / 4 * (ROWS / 2);
            if (row + further >= a.rows) continue;
            char* address = target + (offset + further * a.target_row);
            if (a.is_partial)
                *(float*)address = sums[i][j];
            else
                *(Storage*)address = stored(sums[i][j]);
        }
    }
}

#define WEIGHTS_GEMM(name, rows, columns, depth, threads, wide) \
    KERNEL(name, threads, WeightsArguments) { weights_gemm<rows, columns, depth, threads, wide>(arguments); }

WEIGHTS_GEMM(weights_gemm_128x64x16, 128, 64, 16, 128, false)
WEIGHTS_GEMM(weights_gemm_64x64x16, 64, 64, 16, 64, false)
WEIGHTS_GEMM(weights_gemm_wide_128x64x16, 128, 64, 16, 128, true)
