// What every kernel is written in: one source for HIP and, in tests, for a CPU.
//
// No header is included: ROCm 7 changed those that hiprtc includes by itself. So the names of the programming
// model are defined here, by the compiler's own builtins. The storage type of the tensors is STORAGE_FLOAT32,
// STORAGE_FLOAT16 or STORAGE_BFLOAT16; sums are always in float.

#if defined(ON_CPU)

// Defined by the program that runs the kernels: see tests/kernels/cpu.cpp.
extern "C" int cpu_thread, cpu_block[3];
extern "C" void cpu_barrier();
#define KERNEL(name, threads, Arguments)                                              \
    static void name##_on_cpu(const Arguments arguments);                             \
    extern "C" void name(const void* bytes) { name##_on_cpu(*(const Arguments*)bytes); } \
    static void name##_on_cpu(const Arguments arguments)
#define DEVICE static inline
#define SHARED static
#define THREAD cpu_thread
#define BLOCK_X cpu_block[0]
#define BLOCK_Y cpu_block[1]
#define BLOCK_Z cpu_block[2]
#define BARRIER() cpu_barrier()
#define UNROLL(count)
#define UNROLL_WHOLLY
#define UNIFORM(value) (value)
#define LANES 32
#define CONSTANT(Type) const Type*
#define AS_ONE_REGISTER(offset)
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))

#else

#define KERNEL(name, threads, Arguments)                                          \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void name( \
        const Arguments arguments)
#define DEVICE static __attribute__((device, always_inline)) inline
#define SHARED __attribute__((shared)) static
#define THREAD ((int)__builtin_amdgcn_workitem_id_x())
#define BLOCK_X ((int)__builtin_amdgcn_workgroup_id_x())
#define BLOCK_Y ((int)__builtin_amdgcn_workgroup_id_y())
#define BLOCK_Z ((int)__builtin_amdgcn_workgroup_id_z())
#define BARRIER()                                             \
    (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"),   \
     __builtin_amdgcn_s_barrier(),                            \
     __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define UNROLL(count) _Pragma(STRINGIZED(unroll count))
#define UNROLL_WHOLLY _Pragma("unroll")
// Threads of a wave.
#if defined(__GFX9__)
#define LANES 64
#else
#define LANES 32
#endif
// The same in all threads of a wave: the compiler may keep it in a scalar register.
#define UNIFORM(value) __builtin_amdgcn_readfirstlane(value)
// A pointer to what nobody writes while the kernel runs: read with a uniform index, it is a scalar load.
#define CONSTANT(Type) const __attribute__((address_space(4))) Type*
// Keeps the compiler from making an offset of 32 bits one of 64, which takes two instructions more to add.
#define AS_ONE_REGISTER(offset) __asm__("" : "+v"(offset))
#define MULTIPLY_ADD(a, b, c) __builtin_fmaf(a, b, c)

#endif

#define STRINGIZED(text) #text

#if defined(STORAGE_FLOAT32)

typedef float Storage;
DEVICE float widened(Storage value) { return value; }
DEVICE Storage stored(float value) { return value; }

#elif defined(STORAGE_FLOAT16)

typedef _Float16 Storage;
DEVICE float widened(Storage value) { return (float)value; }
DEVICE Storage stored(float value) { return (Storage)value; }

#elif defined(STORAGE_BFLOAT16)

struct Storage { unsigned short bits; };
union Bits { unsigned bits; float value; };
DEVICE float widened(Storage value) {
    Bits result;
    result.bits = (unsigned)value.bits << 16;
    return result.value;
}
// To the nearest, of two equally near to the even one. A NaN stays a NaN.
DEVICE Storage stored(float value) {
    Bits bits;
    bits.value = value;
    Storage result;
    if ((bits.bits & 0x7fffffffu) > 0x7f800000u)
        result.bits = (unsigned short)(bits.bits >> 16 | 0x40u);
    else
        result.bits = (unsigned short)((bits.bits + 0x7fffu + (bits.bits >> 16 & 1u)) >> 16);
    return result;
}

#endif

// Terms of a sum that lie in one word of LDS, and what adds their products to the sum: two in float16, where the chip
// has an instruction that adds two products in float. Elsewhere the terms are in float.
#if defined(STORAGE_FLOAT16) && \
    (defined(ON_CPU) || defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__))
#define TERMS 2
typedef _Float16 __attribute__((may_alias)) Term;
#if defined(ON_CPU)
typedef _Float16 Pair __attribute__((vector_size(4)));
#define ADD_PAIR(a, b, c) ((float)(a)[0] * (float)(b)[0] + (float)(a)[1] * (float)(b)[1] + (c))
#else
typedef _Float16 Pair __attribute__((ext_vector_type(2)));
#define ADD_PAIR(a, b, c) __builtin_amdgcn_fdot2(a, b, c, false)
#endif
DEVICE float products_added(float a, float b, float sum) {
    return ADD_PAIR(__builtin_bit_cast(Pair, a), __builtin_bit_cast(Pair, b), sum);
}
DEVICE Term term_of(Storage value) { return value; }
#else
#define TERMS 1
typedef float Term;
DEVICE float products_added(float a, float b, float sum) { return MULTIPLY_ADD(a, b, sum); }
DEVICE Term term_of(Storage value) { return widened(value); }
#endif
// The place of term k of a line, in words of which `stride` lie between two k.
DEVICE Term* term_place(void* words, int k, int line, int stride) {
    return (Term*)words + (unsigned)((k / TERMS * stride + line) * TERMS + k % TERMS);
}

// A divisor of numbers below 2^31; the host computes multiplier and shift.
struct Divisor { unsigned value, multiplier; int shift; };
DEVICE unsigned divided(unsigned number, const Divisor& by) {
    return (unsigned)((unsigned long long)number * by.multiplier >> 31 >> by.shift);
}
// Returns the quotient, and leaves the remainder.
DEVICE unsigned take_quotient(unsigned& number, const Divisor& by) {
    const unsigned quotient = divided(number, by);
    number -= quotient * by.value;
    return quotient;
}
// Returns the remainder, and leaves the quotient.
DEVICE int take_remainder(unsigned& number, const Divisor& by) {
    const unsigned quotient = divided(number, by), remainder = number - quotient * by.value;
    number = quotient;
    return remainder;
}

// Four floats that one instruction reads from memory or from LDS.
struct alignas(16) Float4 { float x, y, z, w; };
