// Depthwise convolution and convolution in small groups.
//
// A block computes a tile: some neighbouring groups, and of each a rectangle of positions of the result. It stages
// what the tile reads of one input channel and one depth in LDS, then every thread adds up its results from there.
// A tile has up to 256 threads times REPEATS positions; its sizes are powers of two, given as data. The positions of a
// thread lie one below the other, so that it reads most values for several of them (adjacent), or a tile's width
// apart where the result has few rows. Where the channels are neighbours in memory, the lowest bits of the thread's
// number are the group ("fast"), else the highest. Where a tile does not fit into LDS, a direct kernel reads memory for
// every tap.
//
// All steps are in bytes, all offsets unsigned and of 32 bits: the host keeps what one launch reaches below 2^31.
// Offsets of positions outside of a tensor wrap around; nothing is read there.

#define GROUPED_THREADS 256
// LDS of a block in floats: what is staged, and the weights of the tile.
#define GROUPED_WORDS 5120
// Values that a thread loads from memory before it waits for the first. More take too many scalar registers.
#define GROUPED_LOADS 2
// Positions of a thread.
#define REPEATS 4
// Rows and columns of taps that are added at once.
#define BLOCK 3

// Keeps a value in a vector register, and the compiler from computing what follows from it at another place: there
// are too few scalar registers.
#if defined(ON_CPU)
#define IN_VECTOR(value) asm volatile("" : "+r"(value))
#else
#define IN_VECTOR(value) asm volatile("" : "+v"(value))
#endif

DEVICE float grouped_read(const void* base, unsigned offset) {
    return widened(*(const Storage*)((const char*)base + offset));
}

// What a thread is in its tile. The positions it computes are x + r * repeat_x and y + r * repeat_y.
struct GroupedThread {
    int x, y, fast, slow;
    // Of the tile; slow or fast, the other one is 0.
    int group;
};

template <class Arguments>
DEVICE GroupedThread grouped_thread(const Arguments& a) {
    GroupedThread thread;
    unsigned rest = THREAD;
    thread.fast = rest & ((1u << a.fast_bits) - 1u);
    rest >>= a.fast_bits;
    thread.x = rest & ((1u << a.x_bits) - 1u);
    rest >>= a.x_bits;
    thread.y = (rest & ((1u << a.y_bits) - 1u)) * a.rows;
    thread.slow = rest >> a.y_bits;
    thread.group = thread.fast + (thread.slow << a.fast_bits);
    return thread;
}

// Read the rectangle of all groups of the tile that begins at (y, x), which lies at the offset `base`. A wave reads
// lines of what lies next to each other in LDS; which line and whether it is inside, is the same for all its threads.
template <class Arguments>
DEVICE void grouped_stage(
    const Arguments& a, float* pool, const void* source, unsigned base, int y, int x, int groups) {
    const int width = a.staged_width << a.fast_bits, waves = GROUPED_THREADS / LANES;
    const int lines = a.staged_height.value << (a.group_bits - a.fast_bits);
    for (int first = 0; first < width; first += LANES) {
        const int place = first + THREAD % LANES;
        const int group = place & ((1 << a.fast_bits) - 1), column = place >> a.fast_bits;
        const bool inside =
            (place < width) & (group < groups) & ((unsigned)(column + x) < (unsigned)a.size[2]);
        const unsigned offset = base + group * a.group_step + column * a.step[2];
        for (int line = UNIFORM(THREAD / LANES); line < lines; line += GROUPED_LOADS * waves) {
            float values[GROUPED_LOADS];
            UNROLL(GROUPED_LOADS)
            for (int load = 0; load < GROUPED_LOADS; load++) {
                unsigned slow = line + load * waves;
                const int row = take_remainder(slow, a.staged_height);
                values[load] = 0.0f;
                if ((int)slow < groups && (unsigned)(row + y) < (unsigned)a.size[1] && inside)
                    values[load] = grouped_read(source, offset + (slow * a.group_step + row * a.step[1]));
            }
            UNROLL(GROUPED_LOADS)
            for (int load = 0; load < GROUPED_LOADS; load++)
                if (line + load * waves < lines && place < width)
                    pool[(line + load * waves) * width + place] = values[load];
        }
    }
}

// Add what some taps meet that are next to each other in LDS.
template <int OUTPUTS, int TAPS>
DEVICE void grouped_add(
    float (&sums)[OUTPUTS][REPEATS], const float* at, const int (&from)[REPEATS], const float* weight,
    int weight_step) {
    UNROLL(REPEATS)
    for (int r = 0; r < REPEATS; r++) {
        const float* values = at + from[r];
        UNROLL(TAPS)
        for (int tap = 0; tap < TAPS; tap++) {
            UNROLL(OUTPUTS)
            for (int o = 0; o < OUTPUTS; o++)
                sums[o][r] = MULTIPLY_ADD(weight[tap * weight_step + o], values[tap], sums[o][r]);
        }
    }
}

// The values that adjacent positions read for BLOCK rows of taps.
template <int COLUMNS>
DEVICE void grouped_window(float (&values)[REPEATS + BLOCK - 1][COLUMNS], const float* at, int row, int column) {
    UNROLL(REPEATS + BLOCK - 1)
    for (int i = 0; i < REPEATS + BLOCK - 1; i++) {
        const float* line = at + i * row;
        UNROLL(COLUMNS)
        for (int k = 0; k < COLUMNS; k++) values[i][k] = line[k * column];
    }
}

// Add what BLOCK rows of taps meet, for adjacent positions.
template <int OUTPUTS, int COLUMNS>
DEVICE void grouped_add_adjacent(
    float (&sums)[OUTPUTS][REPEATS], const float* at, int row, const float* weight, int weight_step, int weight_row) {
    float values[REPEATS + BLOCK - 1][COLUMNS];
    grouped_window(values, at, row, 1);
    UNROLL(BLOCK)
    for (int y = 0; y < BLOCK; y++) {
        UNROLL(COLUMNS)
        for (int x = 0; x < COLUMNS; x++) {
            UNROLL(OUTPUTS)
            for (int o = 0; o < OUTPUTS; o++) {
                const float factor = weight[y * weight_row + x * weight_step + o];
                UNROLL(REPEATS)
                for (int r = 0; r < REPEATS; r++) sums[o][r] = MULTIPLY_ADD(factor, values[r + y][x], sums[o][r]);
            }
        }
    }
}

// Forward and bwd-data. The grid: tiles of one depth, of one phase after another; groups by outputs; samples.
template <int OUTPUTS, bool STAGED>
DEVICE void grouped_gather(const GroupedGatherArguments& arguments, float* pool) {
    unsigned rest = BLOCK_X;
    int number = 0;
    while (number + 1 < arguments.phase_count && rest >= arguments.phases[number].blocks[0])
        rest -= arguments.phases[number++].blocks[0];
    const GroupedGatherPhase& a = arguments.phases[number];
    if ((unsigned)BLOCK_Y >= a.blocks[1]) return;
    const GroupedThread thread = grouped_thread(a);
    const int x_first = take_remainder(rest, a.tiles_x) * a.width;
    const int y_first = take_remainder(rest, a.tiles_y) * a.height;
    const int z = rest;
    rest = BLOCK_Y;
    const int group_first = take_remainder(rest, a.group_tiles) << a.group_bits;
    const int output_first = rest * OUTPUTS;
    const int groups = a.groups - group_first;
    const bool here = thread.group < groups && thread.group < 1 << a.group_bits;

    float sums[OUTPUTS][REPEATS];
    // A bit for each repeat whose position is one of the result.
    unsigned active = 0;
    int from[REPEATS];
    UNROLL(REPEATS)
    for (int r = 0; r < REPEATS; r++) {
        const int x = thread.x + r * a.repeat_x, y = thread.y + r * a.repeat_y;
        const bool inside = here & (x < a.width) & (y < a.height) & (x_first + x < a.count[2]) &
            (y_first + y < a.count[1]);
        active |= (unsigned)inside << r;
        const int row = thread.slow * a.staged_height.value + y * a.read_step[1];
        from[r] = inside && STAGED
            ? ((row * a.staged_width + x * a.read_step[2]) << a.fast_bits) + thread.fast
            : 0;
        UNROLL(OUTPUTS)
        for (int o = 0; o < OUTPUTS; o++) sums[o][r] = 0.0f;
    }
    IN_VECTOR(active);

    const int z_in = z * a.read_step[0] + a.read_first[0];
    const int y_in = y_first * a.read_step[1] + a.read_first[1];
    const int x_in = x_first * a.read_step[2] + a.read_first[2];
    const unsigned base = BLOCK_Z * a.sample_step + group_first * a.group_step + y_in * a.step[1] +
        x_in * a.step[2];
    const int taps = a.taps[1] * a.taps[2];
    const int weight_step = OUTPUTS << a.group_bits;
    const unsigned weight_base =
        a.weight_first + group_first * a.weight_group_step + output_first * a.weight_output_step;

    for (int channel = 0; channel < a.channels; channel++)
        for (int tap_z = 0; tap_z < a.taps[0]; tap_z++) {
            const int depth = z_in + tap_z * a.tap_step[0];
            if ((unsigned)depth >= (unsigned)a.size[0]) continue;
            const unsigned plane = base + channel * a.channel_step + depth * a.step[0];
            const unsigned weights =
                weight_base + channel * a.weight_channel_step + tap_z * a.weight_step[0];
            if (STAGED) {
                BARRIER();
                for (int word = THREAD; word < taps * weight_step; word += GROUPED_THREADS) {
                    const int output = word % OUTPUTS;
                    const int group = word / OUTPUTS & ((1 << a.group_bits) - 1);
                    unsigned tap_y = (unsigned)(word / OUTPUTS) >> a.group_bits;
                    const unsigned tap_x = take_remainder(tap_y, a.taps_x);
                    float value = 0.0f;
                    if (group < groups && output_first + output < a.outputs)
                        value = grouped_read(
                            arguments.weight,
                            weights + group * a.weight_group_step + output * a.weight_output_step +
                                tap_y * a.weight_step[1] + tap_x * a.weight_step[2]);
                    pool[a.weights_at + word] = value;
                }
                grouped_stage(a, pool, arguments.source, plane, y_in, x_in, groups);
                BARRIER();
                const float* weight =
                    pool + a.weights_at + (thread.group & ((1 << a.group_bits) - 1)) * OUTPUTS;
                const float* row = pool;
                const int weight_row = weight_step * a.taps[2];
                int tap_y = 0;
                if (a.adjacent)
                    for (; tap_y + BLOCK <= a.taps[1]; tap_y += BLOCK) {
                        const float* at = row + from[0];
                        int left = a.taps[2];
                        if (a.tap_column == 1)
                            for (; left >= BLOCK; left -= BLOCK, at += BLOCK, weight += BLOCK * weight_step)
                                grouped_add_adjacent<OUTPUTS, BLOCK>(
                                    sums, at, a.tap_row, weight, weight_step, weight_row);
                        for (; left > 0; left--, at += a.tap_column, weight += weight_step)
                            grouped_add_adjacent<OUTPUTS, 1>(sums, at, a.tap_row, weight, weight_step, weight_row);
                        row += BLOCK * a.tap_row;
                        weight += (BLOCK - 1) * weight_row;
                    }
                for (; tap_y < a.taps[1]; tap_y++, row += a.tap_row) {
                    const float* at = row;
                    int left = a.taps[2];
                    if (a.tap_column == 1)
                        for (; left >= BLOCK; left -= BLOCK, at += BLOCK, weight += BLOCK * weight_step)
                            grouped_add<OUTPUTS, BLOCK>(sums, at, from, weight, weight_step);
                    for (; left > 0; left--, at += a.tap_column, weight += weight_step)
                        grouped_add<OUTPUTS, 1>(sums, at, from, weight, weight_step);
                }
            } else if (here) {
                for (int tap_y = 0; tap_y < a.taps[1]; tap_y++)
                    for (int tap_x = 0; tap_x < a.taps[2]; tap_x++) {
                        const float weight = grouped_read(
                            arguments.weight,
                            weights + thread.group * a.weight_group_step + tap_y * a.weight_step[1] +
                                tap_x * a.weight_step[2]);
                        UNROLL(REPEATS)
                        for (int r = 0; r < REPEATS; r++) {
                            const int y = (thread.y + r * a.repeat_y) * a.read_step[1] + tap_y * a.tap_step[1];
                            const int x = (thread.x + r * a.repeat_x) * a.read_step[2] + tap_x * a.tap_step[2];
                            if ((active >> r & 1) & ((unsigned)(y_in + y) < (unsigned)a.size[1]) &
                                ((unsigned)(x_in + x) < (unsigned)a.size[2])) {
                                const float value = grouped_read(
                                    arguments.source,
                                    plane + thread.group * a.group_step + y * a.step[1] + x * a.step[2]);
                                sums[0][r] = MULTIPLY_ADD(weight, value, sums[0][r]);
                            }
                        }
                    }
            }
        }

    const unsigned target = a.target_first + BLOCK_Z * a.target_sample_step + (group_first + thread.group) * a.target_group_step +
        output_first * a.target_output_step + z * a.target_step[0];
    UNROLL(OUTPUTS)
    for (int o = 0; o < OUTPUTS; o++) {
        const bool wanted = here && output_first + o < a.outputs;
        float bias = 0.0f;
        if (arguments.bias && wanted)
            bias = grouped_read(
                arguments.bias, ((group_first + thread.group) * a.outputs + output_first + o) * (unsigned)sizeof(Storage));
        UNROLL(REPEATS)
        for (int r = 0; r < REPEATS; r++)
            if ((active >> r & 1) & wanted)
                *(Storage*)((char*)arguments.target + (target + o * a.target_output_step +
                    (y_first + thread.y + r * a.repeat_y) * a.target_step[1] +
                    (x_first + thread.x + r * a.repeat_x) * a.target_step[2])) = stored(sums[o][r] + bias);
    }
}

KERNEL(grouped_gather_1x4, GROUPED_THREADS, GroupedGatherArguments) {
    SHARED float pool[GROUPED_WORDS];
    grouped_gather<1, true>(arguments, pool);
}

KERNEL(grouped_gather_4x4, GROUPED_THREADS, GroupedGatherArguments) {
    SHARED float pool[GROUPED_WORDS];
    grouped_gather<4, true>(arguments, pool);
}

KERNEL(grouped_gather_direct, GROUPED_THREADS, GroupedGatherArguments) {
    grouped_gather<1, false>(arguments, 0);
}

// bwd-weights, BLOCK rows and columns of taps at once. A thread multiplies its values of the feature by what the taps
// meet in LDS; the sums stay in registers until the block has done its share of all tiles, depths and samples. The
// target is the gradient, or the workspace if another launch adds the sums of several blocks. The grid: groups, splits,
// blocks of taps by depths of taps by channels by outputs.
template <int OUTPUTS>
DEVICE void grouped_weights(const GroupedWeightsArguments& a, float* pool) {
    const GroupedThread thread = grouped_thread(a);
    unsigned part = BLOCK_Z;
    const int tap_x = take_remainder(part, a.chunks[1]) * BLOCK;
    const int tap_y = take_remainder(part, a.chunks[0]) * BLOCK;
    const int tap_z = take_remainder(part, a.chunks[2]);
    const int channel = take_remainder(part, a.chunks[3]);
    const int output_first = part * OUTPUTS;
    const int group_first = BLOCK_X << a.group_bits;
    const int groups = a.groups - group_first;
    const bool here = thread.group < groups && thread.group < 1 << a.group_bits && thread.x < a.width;
    const int outputs = a.outputs - output_first;
    // A bit for each repeat whose position is one of the tile.
    unsigned in_tile = 0;
    UNROLL(REPEATS)
    for (int r = 0; r < REPEATS; r++)
        in_tile |= (unsigned)(here & (thread.x + r * a.repeat_x < a.width) &
                              (thread.y + r * a.repeat_y < a.height)) << r;
    IN_VECTOR(in_tile);

    float sums[OUTPUTS * BLOCK * BLOCK] = {};
    // Where the first position reads its first tap, and the distance of the others. Behind the last tap of the kernel,
    // sums are of what is there; they are not written.
    const int row = thread.slow * a.staged_height.value + thread.y * a.read_step[1];
    const int origin = here ? ((row * a.staged_width + thread.x * a.read_step[2]) << a.fast_bits) + thread.fast : 0;
    const int again = (a.repeat_y * a.read_step[1] * a.staged_width + a.repeat_x * a.read_step[2]) << a.fast_bits;
    unsigned feature_offset =
        (group_first + thread.group) * a.feature_group_step + output_first * a.feature_output_step;
    unsigned channel_offset = group_first * a.group_step + channel * a.channel_step;
    IN_VECTOR(feature_offset);
    IN_VECTOR(channel_offset);
    unsigned feature_row = a.feature_step[1], feature_column = a.feature_step[2];
    unsigned feature_output = a.feature_output_step;
    int count_y = a.count[1], count_x = a.count[2], tap_row = a.tap_row, tap_column = a.tap_column;
    IN_VECTOR(feature_row);
    IN_VECTOR(feature_column);
    IN_VECTOR(feature_output);
    IN_VECTOR(count_y);
    IN_VECTOR(count_x);
    IN_VECTOR(tap_row);
    IN_VECTOR(tap_column);
    unsigned written = ((group_first + thread.group) * a.outputs + output_first) * a.target_row +
        channel * a.target_channel + tap_z * a.target_tap[0] + tap_y * a.target_tap[1] + tap_x * a.target_tap[2];
    int rows_left = a.taps[1] - tap_y, columns_left = a.taps[2] - tap_x, outputs_left = outputs;
    IN_VECTOR(written);
    IN_VECTOR(rows_left);
    IN_VECTOR(columns_left);
    IN_VECTOR(outputs_left);

    for (int unit = BLOCK_Y; unit < a.units; unit += a.splits) {
        unsigned rest = unit;
        const int x_first = take_remainder(rest, a.tiles_x) * a.width;
        const int y_first = take_remainder(rest, a.tiles_y) * a.height;
        const int z = take_remainder(rest, a.depths);
        const unsigned sample = rest;
        const int depth = z * a.read_step[0] + a.read_first[0] + tap_z * a.tap_step[0];
        if ((unsigned)depth >= (unsigned)a.size[0]) continue;
        const int y_in = y_first * a.read_step[1] + a.read_first[1] + tap_y * a.tap_step[1];
        const int x_in = x_first * a.read_step[2] + a.read_first[2] + tap_x * a.tap_step[2];
        const unsigned plane =
            sample * a.sample_step + channel_offset + depth * a.step[0] + y_in * a.step[1] + x_in * a.step[2];
        const unsigned feature = sample * a.feature_sample_step + feature_offset + z * a.feature_step[0];

        unsigned active = 0;
        float factors[OUTPUTS][REPEATS];
        UNROLL(REPEATS)
        for (int r = 0; r < REPEATS; r++) {
            const int x = thread.x + r * a.repeat_x, y = thread.y + r * a.repeat_y;
            const bool inside = (in_tile >> r & 1) & (x_first + x < count_x) & (y_first + y < count_y);
            active |= (unsigned)inside << r;
            UNROLL(OUTPUTS)
            for (int o = 0; o < OUTPUTS; o++) factors[o][r] = 0.0f;
            if (inside) {
                const unsigned at = feature + (y_first + y) * feature_row + (x_first + x) * feature_column;
                // Behind the last output that one is read again; its sums are not written.
                UNROLL(OUTPUTS)
                for (int o = 0; o < OUTPUTS; o++)
                    factors[o][r] = grouped_read(a.feature, at + (o < outputs ? o : outputs - 1) * feature_output);
            }
        }
        IN_VECTOR(active);
        BARRIER();
        grouped_stage(a, pool, a.source, plane, y_in, x_in, groups);
        BARRIER();
        float values[REPEATS + BLOCK - 1][BLOCK];
        if (a.adjacent) grouped_window(values, pool + origin, tap_row, tap_column);
        UNROLL(REPEATS)
        for (int r = 0; r < REPEATS; r++) {
            // What a position outside of the result reads can be infinite.
            if (!(active >> r & 1)) continue;
            UNROLL(BLOCK)
            for (int y = 0; y < BLOCK; y++) {
                UNROLL(BLOCK)
                for (int x = 0; x < BLOCK; x++) {
                    const float value = a.adjacent
                        ? values[r + y][x] : pool[origin + r * again + y * tap_row + x * tap_column];
                    UNROLL(OUTPUTS)
                    for (int o = 0; o < OUTPUTS; o++) {
                        float& sum = sums[(o * BLOCK + y) * BLOCK + x];
                        sum = MULTIPLY_ADD(factors[o][r], value, sum);
                    }
                }
            }
        }
    }

    // In each step, half of the threads of a group add the sums of the other half.
    const int SUMS = OUTPUTS * BLOCK * BLOCK, AT_ONCE = 2 * BLOCK * BLOCK;
    const int last_bit = a.fast_bits + a.x_bits + a.y_bits;
    UNROLL(SUMS)
    for (int first = 0; first < SUMS; first += AT_ONCE) {
        BARRIER();
        UNROLL(SUMS)
        for (int k = 0; k < AT_ONCE && first + k < SUMS; k++) pool[k * GROUPED_THREADS + THREAD] = sums[first + k];
        for (int bit = last_bit - 1; bit >= a.fast_bits; bit--) {
            BARRIER();
            if (((unsigned)THREAD & ((1u << last_bit) - 1u)) >> bit) continue;
            UNROLL(SUMS)
            for (int k = 0; k < AT_ONCE && first + k < SUMS; k++) {
                float* own = pool + k * GROUPED_THREADS + THREAD;
                *own = sums[first + k] += own[1 << bit];
            }
        }
    }
    if (!(in_tile & 1) || thread.x || thread.y) return;
    UNROLL(OUTPUTS)
    for (int o = 0; o < OUTPUTS; o++) {
        if (o >= outputs_left) continue;
        const unsigned first = written + o * a.target_row;
        char* target = (char*)a.target + (unsigned long long)BLOCK_Y * a.target_split;
        UNROLL(BLOCK)
        for (int y = 0; y < BLOCK; y++) {
            UNROLL(BLOCK)
            for (int x = 0; x < BLOCK; x++) {
                if (y >= rows_left || x >= columns_left) continue;
                char* address = target + (first + y * a.target_tap[1] + x * a.target_tap[2]);
                const float sum = sums[(o * BLOCK + y) * BLOCK + x];
                if (a.is_partial)
                    *(float*)address = sum;
                else
                    *(Storage*)address = stored(sum);
            }
        }
    }
}

KERNEL(grouped_weights_1x9, GROUPED_THREADS, GroupedWeightsArguments) {
    SHARED float pool[GROUPED_WORDS];
    grouped_weights<1>(arguments, pool);
}

KERNEL(grouped_weights_4x9, GROUPED_THREADS, GroupedWeightsArguments) {
    SHARED float pool[GROUPED_WORDS];
    grouped_weights<4>(arguments, pool);
}
