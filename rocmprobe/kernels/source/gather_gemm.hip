// Forward and bwd-data as a product of matrices: result[row, column] = sum over k of weight[row, k] * read[column, k].
// A column is a position of the result in a sample, k a channel and a tap. Nothing is unfolded: k has an offset in
// bytes, a column has an origin, and their sum is the address.
//
// bwd-data with a stride has a product for each phase of the stride; fwd has one phase. One launch computes several.
// If there are few blocks, k is split: each part goes to the workspace in float, and another launch adds them.
//
// The weights are packed first, in the order in which a block reads them.
//
// A value is read only where its tap lies inside. Each column has a bit for every tap of each dimension, each k asks
// for three of them. Where four neighbouring channels lie next to each other, one load reads them for a column (QUADS).
// Where the taps of the three dimensions are more than 31, k has displacements instead (WIDE).

struct Tap { unsigned offset, wanted; };

// The weights of each phase as [group][k][row], zero where padded, and the table of k. A block has 64 rows and 32 k;
// which channel and tap a k is, is found once for the block.
KERNEL(gather_pack, 64, GatherPackArguments) {
    const GatherPackArguments& a = arguments;
    SHARED long long steps[32];
    unsigned number = BLOCK_Z;
    const int group = take_remainder(number, a.groups);
    const GatherPhase& phase = a.phases[number];
    const int first = BLOCK_Y * 32, own = first + THREAD;
    if (first >= phase.depth_padded) return;
    if (THREAD < 32 && own < phase.depth_padded) {
        Tap entry;
        entry.offset = 0;
        entry.wanted = a.never;
        if (own < phase.depth) {
            const int taps_z = phase.taps[0], taps_y = phase.taps[1], taps_x = phase.taps[2];
            const unsigned taps = taps_z * taps_y * taps_x, inner = a.tap_major ? a.channels : taps;
            const unsigned outer = (unsigned)own / inner, rest = own - outer * inner;
            const unsigned channel = a.tap_major ? rest : outer, tap = a.tap_major ? outer : rest;
            const unsigned plane = tap / taps_x, x = tap - plane * taps_x;
            const unsigned z = plane / taps_y, y = plane - z * taps_y;
            steps[THREAD] = channel * a.channel_step + z * a.tap_steps[0] + y * a.tap_steps[1] + x * a.tap_steps[2];
            entry.offset = channel * a.channel_bytes + z * a.tap_bytes[0] + y * a.tap_bytes[1] + x * a.tap_bytes[2];
            if (a.wide)
                entry.wanted = z * a.tap_reads[0] << 22 | y * a.tap_reads[1] << 11 | x * a.tap_reads[2];
            else
                entry.wanted = 1u << z | 1u << (taps_z + y) | 1u << (taps_z + taps_y + x);
        }
        if (BLOCK_X == 0 && group == 0) ((Tap*)((char*)a.workspace + phase.table))[own] = entry;
    }
    BARRIER();
    const int row = BLOCK_X * 64 + THREAD;
    if (row >= a.rows_padded) return;
    const Storage* weight = (const Storage*)a.weight + phase.weight + group * a.group_step + row * a.row_step;
    Term* packed = (Term*)((char*)a.workspace + phase.packed) +
                   ((long long)group * phase.depth_padded + first) * a.rows_padded + row * TERMS;
    const int count = phase.depth_padded - first < 32 ? phase.depth_padded - first : 32;
    const int inside = row < a.rows ? phase.depth - first : 0;
    UNROLL(4)
    for (int i = 0; i < count; i++) {
        *term_place(packed, i, 0, a.rows_padded) = i < inside ? term_of(weight[steps[i]]) : (Term)0.0f;
    }
}

// Where a column reads its first tap, and which of its taps lie inside.
struct Column {
    unsigned offset, inside;
    int z, y, x;
};

// The sample and the position of a column.
struct Place { unsigned sample, z, y, x; };

DEVICE Place place_of(const GatherPhase& phase, unsigned column) {
    Place place;
    place.sample = take_quotient(column, phase.divisors[0]);
    place.z = take_quotient(column, phase.divisors[1]);
    place.y = take_quotient(column, phase.divisors[2]);
    place.x = column;
    return place;
}

template <bool WIDE>
DEVICE Column column_of(const GatherArguments& a, const GatherPhase& phase, int column) {
    const Place place = place_of(phase, column);
    Column found;
    found.z = (int)place.z * a.read_step[0] + phase.read_first[0];
    found.y = (int)place.y * a.read_step[1] + phase.read_first[1];
    found.x = (int)place.x * a.read_step[2] + phase.read_first[2];
    // What lies before the image has an offset below zero, which the offset of a tap inside makes up for.
    found.offset = place.sample * a.read_sample + (unsigned)found.z * a.read_bytes[0] +
                   (unsigned)found.y * a.read_bytes[1] + (unsigned)found.x * a.read_bytes[2];
    found.inside = 0;
    if (!WIDE) {
        unsigned bit = 1;
        for (int i = 0; i < phase.taps[0]; i++, bit <<= 1)
            if ((unsigned)(found.z + i * a.tap_reads[0]) < (unsigned)a.read_size[0]) found.inside |= bit;
        for (int i = 0; i < phase.taps[1]; i++, bit <<= 1)
            if ((unsigned)(found.y + i * a.tap_reads[1]) < (unsigned)a.read_size[1]) found.inside |= bit;
        for (int i = 0; i < phase.taps[2]; i++, bit <<= 1)
            if ((unsigned)(found.x + i * a.tap_reads[2]) < (unsigned)a.read_size[2]) found.inside |= bit;
        if (column >= phase.columns) found.inside = 0;
    } else if (column >= phase.columns) {
        found.z = -0x40000000;
    }
    return found;
}

template <bool WIDE>
DEVICE bool is_inside(const GatherArguments& a, const Column& column, unsigned wanted) {
    if (!WIDE) return (column.inside & wanted) == wanted;
    // The sign is the bit of the padding behind the last k (NEVER), which no displacement in z uses.
    return (int)wanted >= 0 &
           (unsigned)(column.z + (int)(wanted >> 22)) < (unsigned)a.read_size[0] &
           (unsigned)(column.y + (int)(wanted >> 11 & 2047)) < (unsigned)a.read_size[1] &
           (unsigned)(column.x + (int)(wanted & 2047)) < (unsigned)a.read_size[2];
}

// An array of Float4 that lives across a loop would be kept in memory; one of floats is kept in registers.
DEVICE void take(float (&values)[4], const char* address) {
    const Float4 four = *(const Float4*)address;
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
}

DEVICE void put(Float4& target, const float (&values)[4]) {
    Float4 four;
    four.x = values[0], four.y = values[1], four.z = values[2], four.w = values[3];
    target = four;
}

// Eight rows by eight columns of one thread, over one block of k in LDS.
template <int ROWS, int COLUMNS, int DEPTH, int A_STRIDE, int B_STRIDE>
DEVICE void multiply(const Float4* a_tile, const Float4* b_tile, float (&sums)[8][8]) {
    UNROLL(4)
    for (int k = 0; k < DEPTH / TERMS; k++) {
        const Float4 a0 = a_tile[k * A_STRIDE], a1 = a_tile[k * A_STRIDE + ROWS / 8];
        const Float4 b0 = b_tile[k * B_STRIDE], b1 = b_tile[k * B_STRIDE + COLUMNS / 8];
        const float a[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
        const float b[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
        UNROLL_WHOLLY
        for (int i = 0; i < 8; i++) {
            UNROLL_WHOLLY
            for (int j = 0; j < 8; j++) sums[i][j] = products_added(a[i], b[j], sums[i][j]);
        }
    }
}

template <int ROWS, int COLUMNS, int DEPTH, int THREADS, bool WIDE, bool QUADS>
DEVICE void gather_gemm(const GatherArguments& a) {
    constexpr int A_WORDS = ROWS * DEPTH / TERMS / 4;            // of four rows
    constexpr int A_LOADS = (A_WORDS + THREADS - 1) / THREADS;
    constexpr int A_STEP = THREADS / (ROWS / 4);                 // words between the loads of a thread
    const bool loads_rows = A_WORDS >= THREADS || THREAD < A_WORDS;
    // Columns whose k a thread reads: neighbouring threads have neighbouring columns, or quads of the same one.
    constexpr int LINE = QUADS ? THREADS / (DEPTH / 4) : COLUMNS > THREADS ? THREADS : COLUMNS;
    constexpr int OWN = COLUMNS / LINE;
    constexpr int B_STEP = THREADS / LINE;
    constexpr int B_LOADS = QUADS ? 4 : DEPTH / B_STEP;
    constexpr int B_STRIDE = QUADS ? COLUMNS + 4 : COLUMNS;  // so that what a wave writes lies in different banks
    SHARED Float4 a_tile[2][DEPTH / TERMS][ROWS / 4];
    SHARED Float4 b_tile[2][DEPTH / TERMS][B_STRIDE / 4];

    unsigned rest = BLOCK_Z;
    const int split = take_remainder(rest, a.splits);
    const int group = take_remainder(rest, a.groups);
    const GatherPhase& phase = a.phases[rest];
    const int row_0 = BLOCK_Y * ROWS, column_0 = BLOCK_X * COLUMNS;
    if (column_0 >= phase.columns) return;
    const int k_first = split * phase.split_depth;
    const int k_end = k_first + phase.split_depth < phase.depth_padded ? k_first + phase.split_depth
                                                                         : phase.depth_padded;
    const char* read = (const char*)a.read + (long long)group * a.read_group;
    const char* packed = (const char*)a.workspace + phase.packed +
                         ((long long)group * phase.depth_padded + k_first) * a.rows_padded * (4 / TERMS);
    CONSTANT(Tap) table = (CONSTANT(Tap))((const char*)a.workspace + phase.table);

    const unsigned a_offset = (THREAD / (ROWS / 4) * a.rows_padded + row_0 + THREAD % (ROWS / 4) * 4) * 4;
    const int b_first = QUADS ? THREAD % (DEPTH / 4) * 4 : UNIFORM(THREAD / LINE);
    const int b_column = QUADS ? THREAD / (DEPTH / 4) : THREAD % LINE;
    Column columns[OWN];
    UNROLL_WHOLLY
    for (int p = 0; p < OWN; p++)
        columns[p] = column_of<WIDE>(a, phase, column_0 + b_column + p * LINE);

    float a_next[A_LOADS][4];
    Storage b_next[B_LOADS][OWN];
    bool b_inside[QUADS ? 1 : B_LOADS][OWN];
    Tap own_tap = {};
    const Tap* own_table = (const Tap*)((const char*)a.workspace + phase.table) + b_first;
    if (QUADS && k_first < k_end) own_tap = own_table[k_first];

    const unsigned a_step = A_STEP * a.rows_padded * 4;
    auto load = [&](int k_0) __attribute__((always_inline)) {
        UNROLL_WHOLLY
        for (int i = 0; i < A_LOADS; i++)
            if (loads_rows) take(a_next[i], packed + (a_offset + i * a_step));
        if constexpr (QUADS) {
            UNROLL_WHOLLY
            for (int p = 0; p < OWN; p++) {
                const bool inside = is_inside<WIDE>(a, columns[p], own_tap.wanted);
                b_inside[0][p] = inside;
                const unsigned place = inside ? columns[p].offset + own_tap.offset : 0u;
                UNROLL_WHOLLY
                for (int i = 0; i < 4; i++) b_next[i][p] = ((const Storage*)(read + place))[i];
            }
            // That of the step after the next, which is there after the last, too.
            own_tap = own_table[k_0 + DEPTH];
        } else {
            UNROLL_WHOLLY
            for (int i = 0; i < B_LOADS; i++) {
                const unsigned offset = table[k_0 + b_first + i * B_STEP].offset;
                const unsigned wanted = table[k_0 + b_first + i * B_STEP].wanted;
                UNROLL_WHOLLY
                for (int p = 0; p < OWN; p++) {
                    const bool inside = is_inside<WIDE>(a, columns[p], wanted);
                    b_inside[i][p] = inside;
                    unsigned place = inside ? columns[p].offset + offset : 0u;
                    if (WIDE) AS_ONE_REGISTER(place);
                    b_next[i][p] = *(const Storage*)(read + place);
                }
            }
        }
        packed += DEPTH * a.rows_padded * (4 / TERMS);
    };
    // After the sums of the block before: until then nobody waits for what was loaded.
    auto keep = [&](int buffer) __attribute__((always_inline)) {
        UNROLL_WHOLLY
        for (int i = 0; i < A_LOADS; i++)
            if (loads_rows) put(a_tile[buffer][THREAD / (ROWS / 4) + i * A_STEP][THREAD % (ROWS / 4)], a_next[i]);
        UNROLL_WHOLLY
        for (int i = 0; i < B_LOADS; i++) {
            UNROLL_WHOLLY
            for (int p = 0; p < OWN; p++)
                *term_place(b_tile[buffer], b_first + (QUADS ? i : i * B_STEP), b_column + p * LINE, B_STRIDE) =
                    b_inside[QUADS ? 0 : i][p] ? term_of(b_next[i][p]) : (Term)0.0f;
        }
    };

    // Neighbouring threads write neighbours: positions, or channels where these lie next to each other.
    const int a_quad = QUADS ? THREAD % (ROWS / 8) : THREAD / (COLUMNS / 8);
    const int b_quad = QUADS ? THREAD / (ROWS / 8) : THREAD % (COLUMNS / 8);
    float sums[8][8] = {};
    if (k_first < k_end) {
        int buffer = 0;
        load(k_first);
        keep(0);
        BARRIER();
        for (int k_0 = k_first + DEPTH; k_0 < k_end; k_0 += DEPTH) {
            load(k_0);
            multiply<ROWS, COLUMNS, DEPTH, ROWS / 4, B_STRIDE / 4>(
                &a_tile[buffer][0][a_quad], &b_tile[buffer][0][b_quad], sums);
            buffer ^= 1;
            keep(buffer);
            BARRIER();
        }
        multiply<ROWS, COLUMNS, DEPTH, ROWS / 4, B_STRIDE / 4>(
                &a_tile[buffer][0][a_quad], &b_tile[buffer][0][b_quad], sums);
    }

    const int row = row_0 + a_quad * 4, column = column_0 + b_quad * 4;
    if (a.bias) {
        UNROLL_WHOLLY
        for (int i = 0; i < 8; i++) {
            const int own = row + i % 4 + i / 4 * (ROWS / 2);
            const Storage bias = ((const Storage*)a.bias)[group * a.rows + (own < a.rows ? own : 0)];
            UNROLL_WHOLLY
            for (int j = 0; j < 8; j++) sums[i][j] += widened(bias);
        }
    }
    char* write = (char*)a.write + phase.write + group * a.write_group + split * a.write_split;
    const bool whole = row_0 + ROWS <= a.rows;
    UNROLL_WHOLLY
    for (int j = 0; j < 8; j++) {
        const int own = column + j % 4 + j / 4 * (COLUMNS / 2);
        if (own >= phase.columns) continue;
        const Place place = place_of(phase, own);
        const unsigned offset = place.sample * a.write_sample + place.z * a.write_bytes[0] +
                                place.y * a.write_bytes[1] + place.x * a.write_bytes[2] + row * a.write_row;
        auto put_out = [&](int i) __attribute__((always_inline)) {
            char* address = write + (offset + (i % 4 + i / 4 * (ROWS / 2)) * a.write_row);
            if (a.is_partial)
                *(float*)address = sums[i][j];
            else
                *(Storage*)address = stored(sums[i][j]);
        };
        if (whole) {
            UNROLL_WHOLLY
            for (int i = 0; i < 8; i++) put_out(i);
        } else {
            UNROLL_WHOLLY
            for (int i = 0; i < 8; i++)
                if (row + i % 4 + i / 4 * (ROWS / 2) < a.rows) put_out(i);
        }
    }
}

#define GATHER_GEMM(name, rows, columns, depth, threads, wide, quads)        \
    KERNEL(name, threads, GatherArguments) {                                 \
        gather_gemm<rows, columns, depth, threads, wide, quads>(arguments); \
    }

GATHER_GEMM(gather_gemm_128x64x16, 128, 64, 16, 128, false, false)
GATHER_GEMM(gather_gemm_64x64x8, 64, 64, 8, 64, false, false)
GATHER_GEMM(gather_gemm_32x128x8, 32, 128, 8, 64, false, false)
GATHER_GEMM(gather_gemm_wide_64x64x8, 64, 64, 8, 64, true, false)
GATHER_GEMM(gather_gemm_128x64x16_quads, 128, 64, 16, 128, false, true)
GATHER_GEMM(gather_gemm_64x64x8_quads, 64, 64, 8, 64, false, true)
GATHER_GEMM(gather_gemm_32x128x8_quads, 32, 128, 8, 64, false, true)
