/* What the stand-ins for libamdhip64, librocblas and libMIOpen share: faults by command, numbers in memory.
 *
 * They compute for real, on host memory. LC_STAND_IN_FAULTS="miopenConvolutionForward=status:7;
 * rocblas_sgemm=abort" tells what a call does: status:N returns N with a line on stderr, abort and segv end
 * the process, hang never returns, wrong computes one wrong number, beyond one more than there is room for, nothing
 * finds no algorithm. LC_STAND_IN_DEVICES is the number of GPUs (1). A run hands variables whose names begin with
 * LC_ on to its children. */

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What LC_STAND_IN_FAULTS says after "function=", or NULL. */
static inline const char *fault(const char *function) {
    const char *faults = getenv("LC_STAND_IN_FAULTS");
    size_t length = strlen(function);
    while (faults && *faults) {
        if (!strncmp(faults, function, length) && faults[length] == '=') return faults + length + 1;
        faults = strchr(faults, ';');
        if (faults) faults++;
    }
    return NULL;
}

static inline bool told(const char *function, const char *what) {
    const char *said = fault(function);
    return said && !strncmp(said, what, strlen(what));
}

static inline int failing(const char *function) {
    if (told(function, "abort")) abort();
    if (told(function, "segv")) raise(SIGSEGV);
    if (told(function, "hang"))
        for (;;) pause();
    if (!told(function, "status:")) return 0;
    fprintf(stderr, "MIOpen Error: stand_in.c:1: %s was told to fail\n", function);
    return atoi(fault(function) + 7);
}

enum { BEYOND = 2 };

static inline int told_wrong(const char *function) {
    return told(function, "beyond") ? BEYOND : told(function, "wrong");
}

#define MAY_FAIL do { int number = failing(__func__); if (number) return number; } while (0)

enum type { HALF = 0, FLOAT = 1, BFLOAT16 = 5, DOUBLE = 6 };

static inline float float_of(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }
static inline uint32_t bits_of(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }

/* Normal numbers and zero only, and no rounding: the tests compute in small integers. */
static inline double load(const void *base, size_t at, int type) {
    uint16_t half;
    if (type == DOUBLE) return ((const double *)base)[at];
    if (type == FLOAT) return ((const float *)base)[at];
    half = ((const uint16_t *)base)[at];
    if (type == BFLOAT16) return float_of((uint32_t)half << 16);
    if (!(half & 0x7fff)) return 0;
    return float_of((uint32_t)(half & 0x8000) << 16 | (((uint32_t)(half & 0x7fff) << 13) + (112u << 23)));
}

static inline void store(void *base, size_t at, int type, double value) {
    uint32_t bits = bits_of((float)value);
    if (type == DOUBLE) ((double *)base)[at] = value;
    else if (type == FLOAT) ((float *)base)[at] = (float)value;
    else if (type == BFLOAT16) ((uint16_t *)base)[at] = bits >> 16;
    else if (!(bits << 1)) ((uint16_t *)base)[at] = 0;
    else ((uint16_t *)base)[at] = (bits >> 16 & 0x8000) | (((bits & 0x7fffffff) - (112u << 23)) >> 13);
}
