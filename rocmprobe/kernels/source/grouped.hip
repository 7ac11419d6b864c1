// Depthwise convolution and convolution in small groups.
//
// A block computes a tile: some neighbouring groups, and of each a rectangle of positions of the result. It stages
// what the tile reads of one input channel and one depth in LDS, then every thread adds up its results from there.
// A tile has up to 256 threads times REPEATS positions; its sizes are powers of two, given as data, cut to what the
// result has. Where the channels are neighbours in memory, the lowest bits of the thread's number are the group
// ("fast"), else the highest. Where a tile does not fit into LDS, a direct kernel reads memory for every tap.
//
// All steps are in bytes, all offsets unsigned and of 32 bits: the host keeps what one launch reaches below 2^31.
// Offsets of positions outside of a tensor wrap around; nothing is read there.

#define GROUPED_THREADS 256
// LDS of a block in floats: what is staged, and the weights of the tile.
#define GROUPED_WORDS 5120
// Values that a thread loads from memory before it waits for the first.
#define GROUPED_LOADS 4

// Keeps the compiler from computing what follows from a value at another place, for which the registers would not
// suffice. OPAQUE is for one that is the same in all threads.
#if defined(ON_CPU)
#define OPAQUE(value) asm volatile("" : "+r"(value))
#define OPAQUE_VECTOR(value) asm volatile("" : "+r"(value))
#else
#define OPAQUE(value) asm volatile("" : "+s"(value))
#define OPAQUE_VECTOR(value) asm volatile("" : "+v"(value))
#endif

DEVICE float grouped_read(const void* base, unsigned offset) {
    return widened(*(const Storage*)((const char*)base + offset));
}

// Takes the remainder from a number that is the same in all threads, and leaves the quotient in it. The compiler
// divides in vector registers; what follows is to be in scalar ones again.
DEVICE int grouped_remainder(unsigned& number, int divisor) {
    const unsigned quotient = UNIFORM(number / (unsigned)divisor);
    const unsigned remainder = number - quotient * divisor;
    number = quotient;
    return remainder;
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
    thread.y = rest & ((1u << a.y_bits) - 1u);
    thread.slow = rest >> a.y_bits;
    thread.group = thread.fast + (thread.slow << a.fast_bits);
    return thread;
}

// Where a thread begins to load, and what it has come to.
struct GroupedCursor {
    int x, y, group;
    unsigned offset;
};

template <class Arguments>
DEVICE GroupedCursor grouped_cursor(const Arguments& a) {
    GroupedCursor cursor;
    const unsigned fast = (unsigned)THREAD & ((1u << a.fast_bits) - 1u);
    unsigned rest = (unsigned)THREAD >> a.fast_bits;
    const unsigned rows = rest / (unsigned)a.staged_width;
    cursor.x = rest - rows * a.staged_width;
    const unsigned planes = rows / (unsigned)a.staged_height;
    cursor.y = rows - planes * a.staged_height;
    cursor.group = planes + fast;
    cursor.offset = cursor.group * a.group_step + cursor.y * a.step[1] + cursor.x * a.step[2];
    return cursor;
}

// Read the rectangle of all groups of the tile that begins at (y, x), which lies at the offset `base`.
template <class Arguments>
DEVICE void grouped_stage(
    const Arguments& a, float* pool, const void* source, unsigned base, int y, int x, int groups,
    GroupedCursor cursor) {
    for (int first = THREAD; first < a.words; first += GROUPED_LOADS * GROUPED_THREADS) {
        float values[GROUPED_LOADS];
        UNROLL(GROUPED_LOADS)
        for (int load = 0; load < GROUPED_LOADS; load++) {
            values[load] = 0.0f;
            const bool inside = (first + load * GROUPED_THREADS < a.words) & (cursor.group < groups) &
                ((unsigned)(cursor.y + y) < (unsigned)a.size[1]) &
                ((unsigned)(cursor.x + x) < (unsigned)a.size[2]);
            if (inside) values[load] = grouped_read(source, base + cursor.offset);
            cursor.x += a.advance[2];
            cursor.y += a.advance[1];
            cursor.group += a.advance[0];
            cursor.offset += a.advance_offset[0];
            if (cursor.x >= a.staged_width) {
                cursor.x -= a.staged_width;
                cursor.y += 1;
                cursor.offset += a.advance_offset[1];
            }
            if (cursor.y >= a.staged_height) {
                cursor.y -= a.staged_height;
                cursor.group += 1;
                cursor.offset += a.advance_offset[2];
            }
        }
        UNROLL(GROUPED_LOADS)
        for (int load = 0; load < GROUPED_LOADS; load++) {
            // Behind the last word is one that nobody reads: to write there is less than to branch.
            const int word = first + load * GROUPED_THREADS;
            pool[word < a.words ? word : a.words] = values[load];
        }
    }
}

// Add what some taps meet that are next to each other in LDS.
template <int OUTPUTS, int REPEATS, int TAPS>
DEVICE void grouped_add(
    float (&sums)[OUTPUTS][REPEATS], const float* at, const int (&from)[REPEATS], const float* weight,
    int weight_step) {
    float weights[TAPS][OUTPUTS];
    UNROLL(TAPS)
    for (int tap = 0; tap < TAPS; tap++) {
        UNROLL(OUTPUTS)
        for (int o = 0; o < OUTPUTS; o++) weights[tap][o] = weight[tap * weight_step + o];
    }
    UNROLL(REPEATS)
    for (int r = 0; r < REPEATS; r++) {
        const float* values = at + from[r];
        UNROLL(TAPS)
        for (int tap = 0; tap < TAPS; tap++) {
            UNROLL(OUTPUTS)
            for (int o = 0; o < OUTPUTS; o++)
                sums[o][r] = MULTIPLY_ADD(weights[tap][o], values[tap], sums[o][r]);
        }
    }
}

// Forward and bwd-data. The grid: tiles of one depth, of one phase after another; groups by outputs; samples.
template <int OUTPUTS, int REPEATS, bool STAGED>
DEVICE void grouped_gather(const GroupedGatherArguments& arguments, float* pool) {
    unsigned rest = BLOCK_X;
    int number = 0;
    while (number + 1 < arguments.phase_count && rest >= arguments.phases[number].blocks[0])
        rest -= arguments.phases[number++].blocks[0];
    const GroupedGatherPhase& a = arguments.phases[number];
    if ((unsigned)BLOCK_Y >= a.blocks[1]) return;
    const GroupedThread thread = grouped_thread(a);
    const int x_first = grouped_remainder(rest, a.tiles[2]) * a.width;
    const int y_first = grouped_remainder(rest, a.tiles[1]) * a.height;
    const int z = rest;
    rest = BLOCK_Y;
    const int group_first = grouped_remainder(rest, a.group_tiles) << a.group_bits;
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
        const int row = thread.slow * a.staged_height + y * a.read_step[1];
        from[r] = inside && STAGED
            ? ((row * a.staged_width + x * a.read_step[2]) << a.fast_bits) + thread.fast
            : 0;
        UNROLL(OUTPUTS)
        for (int o = 0; o < OUTPUTS; o++) sums[o][r] = 0.0f;
    }
    OPAQUE_VECTOR(active);

    const int z_in = z * a.read_step[0] + a.read_first[0];
    const int y_in = y_first * a.read_step[1] + a.read_first[1];
    const int x_in = x_first * a.read_step[2] + a.read_first[2];
    const unsigned base = BLOCK_Z * a.sample_step + group_first * a.group_step + y_in * a.step[1] +
        x_in * a.step[2];
    GroupedCursor cursor;
    if (STAGED) cursor = grouped_cursor(a);
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
                    const unsigned tap = (unsigned)(word / OUTPUTS) >> a.group_bits;
                    const unsigned tap_y = tap / (unsigned)a.taps[2], tap_x = tap - tap_y * a.taps[2];
                    float value = 0.0f;
                    if (group < groups && output_first + output < a.outputs)
                        value = grouped_read(
                            arguments.weight,
                            weights + group * a.weight_group_step + output * a.weight_output_step +
                                tap_y * a.weight_step[1] + tap_x * a.weight_step[2]);
                    pool[a.weights_at + word] = value;
                }
                grouped_stage(a, pool, arguments.source, plane, y_in, x_in, groups, cursor);
                BARRIER();
                const float* weight =
                    pool + a.weights_at + (thread.group & ((1 << a.group_bits) - 1)) * OUTPUTS;
                const float* row = pool;
                for (int tap_y = 0; tap_y < a.taps[1]; tap_y++, row += a.tap_row) {
                    const float* at = row;
                    int left = a.taps[2];
                    if (a.tap_column == 1)
                        for (; left >= 3; left -= 3, at += 3, weight += 3 * weight_step)
                            grouped_add<OUTPUTS, REPEATS, 3>(sums, at, from, weight, weight_step);
                    for (; left > 0; left--, at += a.tap_column, weight += weight_step)
                        grouped_add<OUTPUTS, REPEATS, 1>(sums, at, from, weight, weight_step);
                }
            } else if (here) {
                for (int tap_y = 0; tap_y < a.taps[1]; tap_y++)
                    for (int tap_x = 0; tap_x < a.taps[2]; tap_x++) {
                        float weight[OUTPUTS];
                        UNROLL(OUTPUTS)
                        for (int o = 0; o < OUTPUTS; o++) {
                            weight[o] = 0.0f;
                            if (output_first + o < a.outputs)
                                weight[o] = grouped_read(
                                    arguments.weight,
                                    weights + thread.group * a.weight_group_step + o * a.weight_output_step +
                                        tap_y * a.weight_step[1] + tap_x * a.weight_step[2]);
                        }
                        UNROLL(REPEATS)
                        for (int r = 0; r < REPEATS; r++) {
                            const int y = (thread.y + r * a.repeat_y) * a.read_step[1] +
                                tap_y * a.tap_step[1];
                            const int x = (thread.x + r * a.repeat_x) * a.read_step[2] +
                                tap_x * a.tap_step[2];
                            if ((active >> r & 1) & ((unsigned)(y_in + y) < (unsigned)a.size[1]) &
                                ((unsigned)(x_in + x) < (unsigned)a.size[2])) {
                                const float value = grouped_read(
                                    arguments.source,
                                    plane + thread.group * a.group_step + y * a.step[1] + x * a.step[2]);
                                UNROLL(OUTPUTS)
                                for (int o = 0; o < OUTPUTS; o++)
                                    sums[o][r] = MULTIPLY_ADD(weight[o], value, sums[o][r]);
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

#define GROUPED_GATHER(outputs, repeats)                                                              \
    KERNEL(grouped_gather_##outputs##x##repeats, GROUPED_THREADS, GroupedGatherArguments) {           \
        SHARED float pool[GROUPED_WORDS];                                                             \
        grouped_gather<outputs, repeats, true>(arguments, pool);                                      \
    }

#define GROUPED_GATHER_DIRECT(outputs)                                                                \
    KERNEL(grouped_gather_direct_##outputs##x1, GROUPED_THREADS, GroupedGatherArguments) {            \
        grouped_gather<outputs, 1, false>(arguments, 0);                                              \
    }

GROUPED_GATHER(1, 1)
GROUPED_GATHER(1, 4)
GROUPED_GATHER(2, 1)
GROUPED_GATHER(2, 4)
GROUPED_GATHER(4, 1)
GROUPED_GATHER(4, 4)
GROUPED_GATHER(8, 1)
GROUPED_GATHER(8, 4)
GROUPED_GATHER_DIRECT(1)
GROUPED_GATHER_DIRECT(2)
GROUPED_GATHER_DIRECT(4)
GROUPED_GATHER_DIRECT(8)

// bwd-weights. A thread multiplies its values of the feature by what the taps of a chunk meet in LDS; the sums stay
// in registers until the block has done its share of all tiles, depths and samples. The target is the gradient, or the
// workspace if another launch adds the sums of several blocks. The grid: groups, splits, chunks of taps by depths of
// taps by channels by outputs.
template <int OUTPUTS, int TAPS, int REPEATS, bool STAGED>
DEVICE void grouped_weights(const GroupedWeightsArguments& a, float* pool) {
    const GroupedThread thread = grouped_thread(a);
    unsigned part = BLOCK_Z;
    const int tap_first = grouped_remainder(part, a.chunks) * TAPS;
    const int tap_z = grouped_remainder(part, a.taps[0]);
    const int channel = grouped_remainder(part, a.channels);
    const int output_first = part * OUTPUTS;
    const int group_first = BLOCK_X << a.group_bits;
    const int groups = a.groups - group_first;
    const bool here = thread.group < groups && thread.group < 1 << a.group_bits;
    const int taps = a.taps[1] * a.taps[2];
    const int outputs = a.outputs - output_first;

    const int SUMS = OUTPUTS * TAPS;
    float sums[SUMS];
    UNROLL(SUMS)
    for (int k = 0; k < SUMS; k++) sums[k] = 0.0f;
    // Where the taps of the chunk are read: the place in LDS for the first repeat, or distances in positions. Behind
    // the last tap that one is read again.
    int at[TAPS], tap_y[TAPS], tap_x[TAPS];
    const int row = thread.slow * a.staged_height + thread.y * a.read_step[1];
    const int origin = ((row * a.staged_width + thread.x * a.read_step[2]) << a.fast_bits) + thread.fast;
    const int again = (a.repeat_y * a.read_step[1] * a.staged_width + a.repeat_x * a.read_step[2]) << a.fast_bits;
    unsigned tap = tap_first;
    int column_of_tap = grouped_remainder(tap, a.taps[2]);
    int row_of_tap = tap;
    UNROLL(TAPS)
    for (int k = 0; k < TAPS; k++) {
        tap_y[k] = row_of_tap * a.tap_step[1];
        tap_x[k] = column_of_tap * a.tap_step[2];
        at[k] = STAGED ? origin + ((tap_y[k] * a.staged_width + tap_x[k]) << a.fast_bits) : 0;
        if (STAGED) OPAQUE_VECTOR(at[k]);
        const int more = tap_first + k + 1 < taps;
        const int next = column_of_tap + more;
        row_of_tap += next == a.taps[2];
        column_of_tap = next == a.taps[2] ? 0 : next;
    }
    GroupedCursor cursor;
    if (STAGED) cursor = grouped_cursor(a);
    // Until after the loop in vector registers, since there are too few scalar ones.
    int left_kept = taps - tap_first, tap_kept = tap_first;
    unsigned row_kept = (group_first + thread.group) * a.outputs + output_first;
    OPAQUE_VECTOR(left_kept);
    OPAQUE_VECTOR(tap_kept);
    OPAQUE_VECTOR(row_kept);

    for (int unit = BLOCK_Y; unit < a.units; unit += a.splits) {
        unsigned rest = unit;
        const int x_first = grouped_remainder(rest, a.tiles[2]) * a.width;
        const int y_first = grouped_remainder(rest, a.tiles[1]) * a.height;
        const int z = grouped_remainder(rest, a.count[0]);
        const unsigned sample = rest;
        const int depth = z * a.read_step[0] + a.read_first[0] + tap_z * a.tap_step[0];
        if ((unsigned)depth >= (unsigned)a.size[0]) continue;
        const int y_in = y_first * a.read_step[1] + a.read_first[1];
        const int x_in = x_first * a.read_step[2] + a.read_first[2];
        const unsigned plane = sample * a.sample_step + group_first * a.group_step + channel * a.channel_step +
            depth * a.step[0] + y_in * a.step[1] + x_in * a.step[2];
        const unsigned feature = sample * a.feature_sample_step +
            (group_first + thread.group) * a.feature_group_step + output_first * a.feature_output_step +
            z * a.feature_step[0];

        unsigned active = 0;
        float factors[OUTPUTS][REPEATS];
        UNROLL(REPEATS)
        for (int r = 0; r < REPEATS; r++) {
            const int x = thread.x + r * a.repeat_x, y = thread.y + r * a.repeat_y;
            const bool inside = here & (x < a.width) & (y < a.height) & (x_first + x < a.count[2]) &
                (y_first + y < a.count[1]);
            active |= (unsigned)inside << r;
            UNROLL(OUTPUTS)
            for (int o = 0; o < OUTPUTS; o++) factors[o][r] = 0.0f;
            if (inside) {
                const unsigned at = feature + (y_first + y) * a.feature_step[1] + (x_first + x) * a.feature_step[2];
                // Behind the last output that one is read again; its sums are not written.
                UNROLL(OUTPUTS)
                for (int o = 0; o < OUTPUTS; o++)
                    factors[o][r] = grouped_read(a.feature, at + (o < outputs ? o : outputs - 1) * a.feature_output_step);
            }
        }
        OPAQUE_VECTOR(active);
        if (STAGED) {
            BARRIER();
            grouped_stage(a, pool, a.source, plane, y_in, x_in, groups, cursor);
            BARRIER();
        }
        UNROLL(REPEATS)
        for (int r = 0; r < REPEATS; r++) {
            if (!(active >> r & 1)) continue;
            const int y = (thread.y + r * a.repeat_y) * a.read_step[1];
            const int x = (thread.x + r * a.repeat_x) * a.read_step[2];
            int shift = r * again;
            if (TAPS > 9) OPAQUE(shift);
            UNROLL(TAPS)
            for (int k = 0; k < TAPS; k++) {
                float value = 0.0f;
                if (STAGED) value = pool[at[k] + shift];
                else if (((unsigned)(y_in + y + tap_y[k]) < (unsigned)a.size[1]) &
                         ((unsigned)(x_in + x + tap_x[k]) < (unsigned)a.size[2]))
                    value = grouped_read(
                        a.source,
                        plane + thread.group * a.group_step + (y + tap_y[k]) * a.step[1] +
                            (x + tap_x[k]) * a.step[2]);
                UNROLL(OUTPUTS)
                for (int o = 0; o < OUTPUTS; o++)
                    sums[o * TAPS + k] = MULTIPLY_ADD(factors[o][r], value, sums[o * TAPS + k]);
            }
        }
    }

    // Each step adds the sums of the thread whose number differs in one bit, of those that are positions: in the end
    // all threads of a group have the same.
    const int AT_ONCE = GROUPED_WORDS / GROUPED_THREADS;
    const int last_bit = a.fast_bits + a.x_bits + a.y_bits;
    for (int bit = a.fast_bits; bit < last_bit; bit++) {
        UNROLL(SUMS)
        for (int first = 0; first < SUMS; first += AT_ONCE) {
            BARRIER();
            UNROLL(SUMS)
            for (int k = 0; k < AT_ONCE; k++)
                if (first + k < SUMS) pool[k * GROUPED_THREADS + THREAD] = sums[first + k];
            BARRIER();
            UNROLL(SUMS)
            for (int k = 0; k < AT_ONCE; k++)
                if (first + k < SUMS)
                    sums[first + k] += pool[k * GROUPED_THREADS + (THREAD ^ 1 << bit)];
        }
    }
    if (!here || thread.x || thread.y) return;
    int left = UNIFORM(left_kept);
    OPAQUE(left);
    UNROLL(OUTPUTS)
    for (int o = 0; o < OUTPUTS; o++) {
        if (o >= outputs) continue;
        const unsigned first = (row_kept + o) * a.target_row + channel * a.target_channel + tap_z * a.target_tap[0];
        char* target = (char*)a.target + (unsigned long long)BLOCK_Y * a.target_split;
        unsigned place = UNIFORM(tap_kept);
        int x = grouped_remainder(place, a.taps[2]);
        int y = place;
        UNROLL(TAPS)
        for (int k = 0; k < TAPS; k++) {
            if (k < left) {
                char* address = target + (first + y * a.target_tap[1] + x * a.target_tap[2]);
                if (a.is_partial)
                    *(float*)address = sums[o * TAPS + k];
                else
                    *(Storage*)address = stored(sums[o * TAPS + k]);
            }
            const int over = ++x == a.taps[2];
            x = over ? 0 : x;
            y += over;
        }
    }
}

#define GROUPED_WEIGHTS(name, outputs, taps, repeats, staged)                                         \
    KERNEL(name, GROUPED_THREADS, GroupedWeightsArguments) {                                          \
        SHARED float pool[GROUPED_WORDS];                                                             \
        grouped_weights<outputs, taps, repeats, staged>(arguments, pool);                             \
    }

GROUPED_WEIGHTS(grouped_weights_1x3, 1, 3, 4, true)
GROUPED_WEIGHTS(grouped_weights_1x9, 1, 9, 4, true)
GROUPED_WEIGHTS(grouped_weights_1x25, 1, 25, 4, true)
GROUPED_WEIGHTS(grouped_weights_4x9, 4, 9, 4, true)
GROUPED_WEIGHTS(grouped_weights_direct_1x9, 1, 9, 1, false)
GROUPED_WEIGHTS(grouped_weights_direct_4x9, 4, 9, 1, false)
