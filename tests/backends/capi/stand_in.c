/* Stands in for libamdhip64, librocblas and libMIOpen on host memory: computes for real, fails as told.
 *
 * Built with -DHIP, -DROCBLAS or -DMIOPEN, one library each; -DOLD_PROPERTIES, -DWITHOUT_FIND2 and
 * -DWITHOUT_IMMEDIATE leave symbols out as older releases do.
 *
 * STAND_IN_FAULTS="miopenConvolutionForward=status:7;rocblas_sgemm=abort" tells what a call does: status:N
 * returns N with a line on stderr, abort and segv end the process, hang never returns, wrong computes one
 * wrong number. STAND_IN_DEVICES is the number of GPUs (1). */

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What STAND_IN_FAULTS says after "function=", or NULL. */
static const char *fault(const char *function) {
    const char *faults = getenv("STAND_IN_FAULTS");
    size_t length = strlen(function);
    while (faults && *faults) {
        if (!strncmp(faults, function, length) && faults[length] == '=') return faults + length + 1;
        faults = strchr(faults, ';');
        if (faults) faults++;
    }
    return NULL;
}

static int failing(const char *function) {
    const char *told = fault(function);
    if (!told) return 0;
    if (!strncmp(told, "abort", 5)) abort();
    if (!strncmp(told, "segv", 4)) raise(SIGSEGV);
    if (!strncmp(told, "hang", 4))
        for (;;) pause();
    if (strncmp(told, "status:", 7)) return 0;
    fprintf(stderr, "MIOpen Error: stand_in.c:1: %s was told to fail\n", function);
    return atoi(told + 7);
}

#if defined(ROCBLAS) || defined(MIOPEN)
static int told_wrong(const char *function) {
    const char *told = fault(function);
    return told && !strncmp(told, "wrong", 5);
}
#endif

#define MAY_FAIL do { int number = failing(__func__); if (number) return number; } while (0)

enum type { HALF = 0, FLOAT = 1, BFLOAT16 = 5, DOUBLE = 6 };

#if defined(ROCBLAS) || defined(MIOPEN)
static float float_of(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }
static uint32_t bits_of(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }

/* Normal numbers and zero only, and no rounding: the tests compute in small integers. */
static double load(const void *base, size_t at, int type) {
    uint16_t half;
    if (type == DOUBLE) return ((const double *)base)[at];
    if (type == FLOAT) return ((const float *)base)[at];
    half = ((const uint16_t *)base)[at];
    if (type == BFLOAT16) return float_of((uint32_t)half << 16);
    if (!(half & 0x7fff)) return 0;
    return float_of((uint32_t)(half & 0x8000) << 16 | (((uint32_t)(half & 0x7fff) << 13) + (112u << 23)));
}

static void store(void *base, size_t at, int type, double value) {
    uint32_t bits = bits_of((float)value);
    if (type == DOUBLE) ((double *)base)[at] = value;
    else if (type == FLOAT) ((float *)base)[at] = (float)value;
    else if (type == BFLOAT16) ((uint16_t *)base)[at] = bits >> 16;
    else if (!(bits << 1)) ((uint16_t *)base)[at] = 0;
    else ((uint16_t *)base)[at] = (bits >> 16 & 0x8000) | (((bits & 0x7fffffff) - (112u << 23)) >> 13);
}
#endif

#ifdef HIP
static int devices(void) { const char *count = getenv("STAND_IN_DEVICES"); return count ? atoi(count) : 1; }

const char *hipGetErrorName(int error) {
    switch (error) {
    case 0: return "hipSuccess";
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 98: return "hipErrorInvalidDeviceFunction";
    case 100: return "hipErrorNoDevice";
    case 101: return "hipErrorInvalidDevice";
    default: return "hipErrorUnknown";
    }
}

int hipInit(unsigned flags) { MAY_FAIL; (void)flags; return devices() ? 0 : 100; }
int hipRuntimeGetVersion(int *version) { MAY_FAIL; *version = 60443484; return 0; }
int hipGetDeviceCount(int *count) { MAY_FAIL; *count = devices(); return *count ? 0 : 100; }
int hipSetDevice(int device) { MAY_FAIL; return device >= 0 && device < devices() ? 0 : 101; }

int hipDeviceGetName(char *name, int length, int device) {
    MAY_FAIL;
    if (device < 0 || device >= devices()) return 101;
    snprintf(name, length, "Stand-in Radeon");
    return 0;
}

#ifdef OLD_PROPERTIES
int hipGetDeviceProperties(char *properties, int device) {
    MAY_FAIL;
    if (device < 0 || device >= devices()) return 101;
    memset(properties, 0x55, 792);
    strcpy(properties + 396, "gfx1010");
    return 0;
}
#else
/* The old layout that newer libraries keep under the old name: reading it with the new one gives nonsense. */
int hipGetDeviceProperties(char *properties, int device) {
    (void)device;
    memset(properties, 0x55, 792);
    return 0;
}

int hipGetDevicePropertiesR0600(char *properties, int device) {
    MAY_FAIL;
    if (device < 0 || device >= devices()) return 101;
    memset(properties, 0x55, 1472);
    strcpy(properties + 1160, "gfx1030");
    return 0;
}
#endif

int hipMemGetInfo(size_t *available, size_t *total) {
    MAY_FAIL;
    *available = (size_t)5 << 30;
    *total = (size_t)6 << 30;
    return 0;
}

int hipMalloc(void **address, size_t size) {
    MAY_FAIL;
    if (size > (size_t)6 << 30) return 2;
    *address = malloc(size);
    return 0;
}

int hipFree(void *address) { MAY_FAIL; free(address); return 0; }
int hipMemset(void *address, int value, size_t size) { MAY_FAIL; memset(address, value, size); return 0; }
int hipDeviceSynchronize(void) { MAY_FAIL; return 0; }

int hipMemcpy(void *to, const void *from, size_t size, int kind) {
    MAY_FAIL;
    if (kind < 0 || kind > 4) return 21;
    memcpy(to, from, size);
    return 0;
}
#endif

#ifdef ROCBLAS
static int a_handle;

int rocblas_create_handle(void **handle) { MAY_FAIL; *handle = &a_handle; return 0; }
int rocblas_destroy_handle(void *handle) { MAY_FAIL; return handle == &a_handle ? 0 : 1; }

int rocblas_get_version_string(char *text, size_t length) {
    MAY_FAIL;
    snprintf(text, length, "4.4.0.stand-in");
    return 0;
}

/* Column-major, no transposition. */
static int gemm(int m, int n, int k, double alpha, const void *a, int lda, const void *b, int ldb, double beta,
                void *c, int ldc, int type, int wrong) {
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            size_t at = row + (size_t)column * ldc;
            double sum = 0;
            for (int i = 0; i < k; i++)
                sum += load(a, row + (size_t)i * lda, type) * load(b, i + (size_t)column * ldb, type);
            store(c, at, type, alpha * sum + (beta ? beta * load(c, at, type) : 0) + (wrong && !at));
        }
    return 0;
}

#define GEMM(name, real, type)                                                                               \
    int name(void *handle, int ta, int tb, int m, int n, int k, const real *alpha, const void *a, int lda,   \
             const void *b, int ldb, const real *beta, void *c, int ldc) {                                   \
        MAY_FAIL;                                                                                            \
        if (handle != &a_handle) return 1;                                                                   \
        if (ta != 111 || tb != 111) return 11;                                                               \
        return gemm(m, n, k, load(alpha, 0, type), a, lda, b, ldb, load(beta, 0, type), c, ldc, type,        \
                    told_wrong(#name));                                                                      \
    }
GEMM(rocblas_sgemm, float, FLOAT)
GEMM(rocblas_dgemm, double, DOUBLE)
GEMM(rocblas_hgemm, uint16_t, HALF)

int rocblas_gemm_ex(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int a_type,
                    int lda, const void *b, int b_type, int ldb, const void *beta, const void *c, int c_type,
                    int ldc, void *d, int d_type, int ldd, int compute_type, int algorithm, int32_t solution,
                    uint32_t flags) {
    int type = a_type == 150 ? HALF : a_type == 151 ? FLOAT : BFLOAT16;
    MAY_FAIL;
    if (handle != &a_handle) return 1;
    if (ta != 111 || tb != 111 || a_type != b_type || b_type != c_type || c_type != d_type) return 11;
    if (compute_type != 151 || c != d || ldc != ldd || algorithm || solution || flags) return 2;
    return gemm(m, n, k, *(const float *)alpha, a, lda, b, ldb, *(const float *)beta, d, ldd, type,
                told_wrong("rocblas_gemm_ex"));
}
#endif

#ifdef MIOPEN
struct tensor { int type, rank, lengths[5], strides[5]; };
struct convolution { int rank, pads[3], strides[3], dilations[3], groups; };
struct problem { struct convolution *convolution; int direction; struct tensor *tensors[4]; };
struct solution { struct problem problem; int solver; };
struct perf { int algorithm; float time; size_t memory; };
struct conv_solution { float time; size_t workspace; uint64_t id; int algorithm; };
struct argument { int id; void *descriptor; void *buffer; };

/* What MIOpen 3.4 offers on a gfx1010, the fastest first: naive and GEMM. */
static const struct { uint64_t id; int algorithm; float time; size_t workspace; } solvers[2] = {
    {85, 1, 12.25f, 0}, {91, 0, 14.0f, 6912}};
static int a_handle;

int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) {
    MAY_FAIL;
    *major = 3, *minor = 4, *patch = 0;
    return 0;
}

int miopenCreate(void **handle) { MAY_FAIL; *handle = &a_handle; return 0; }
int miopenDestroy(void *handle) { MAY_FAIL; return handle == &a_handle ? 0 : 3; }
int miopenCreateTensorDescriptor(void **d) { MAY_FAIL; *d = calloc(1, sizeof(struct tensor)); return 0; }
int miopenDestroyTensorDescriptor(void *d) { MAY_FAIL; free(d); return 0; }
int miopenCreateConvolutionDescriptor(void **d) { MAY_FAIL; *d = calloc(1, sizeof(struct convolution)); return 0; }
int miopenDestroyConvolutionDescriptor(void *d) { MAY_FAIL; free(d); return 0; }
int miopenSetConvolutionGroupCount(struct convolution *c, int groups) { MAY_FAIL; c->groups = groups; return 0; }

int miopenSetTensorDescriptor(struct tensor *t, int type, int rank, const int *lengths, const int *strides) {
    MAY_FAIL;
    if (rank < 1 || rank > 5) return 3;
    t->type = type, t->rank = rank;
    memcpy(t->lengths, lengths, rank * sizeof(int));
    memcpy(t->strides, strides, rank * sizeof(int));
    return 0;
}

int miopenInitConvolutionNdDescriptor(struct convolution *c, int rank, const int *pads, const int *strides,
                                      const int *dilations, int mode) {
    MAY_FAIL;
    if (mode || rank < 2 || rank > 3) return 3;
    c->rank = rank;
    memcpy(c->pads, pads, rank * sizeof(int));
    memcpy(c->strides, strides, rank * sizeof(int));
    memcpy(c->dilations, dilations, rank * sizeof(int));
    return 0;
}

static size_t place(const struct tensor *t, int first, int second, const int *spatial) {
    size_t at = (size_t)first * t->strides[0] + (size_t)second * t->strides[1];
    for (int axis = 0; axis + 2 < t->rank; axis++) at += (size_t)spatial[axis] * t->strides[axis + 2];
    return at;
}

/* The next place of a box, the last axis fastest; false after the last one. */
static bool next(int *spatial, const int *sizes, int rank) {
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (++spatial[axis] < sizes[axis]) return true;
        spatial[axis] = 0;
    }
    return false;
}

static int convolve(int direction, const struct convolution *conv, const struct tensor *td[4], void *buffers[4],
                    int wrong) {
    const struct tensor *x = td[1], *w = td[2], *y = td[3];
    const struct tensor *result = direction == 0 ? y : direction == 1 ? x : w;
    void *out = buffers[direction == 0 ? 3 : direction == 1 ? 1 : 2];
    size_t span = 1;
    int in_group = w->lengths[1], out_group = w->lengths[0] / conv->groups;
    double *sums;
    if (x->rank != conv->rank + 2 || x->lengths[1] != in_group * conv->groups) return 3;
    for (int axis = 0; axis < result->rank; axis++) span *= result->lengths[axis];
    sums = calloc(span, sizeof(double));
    for (int n = 0; n < x->lengths[0]; n++)
        for (int k = 0; k < w->lengths[0]; k++)
            for (int c = 0; c < in_group; c++) {
                int o[3] = {0}, f[3] = {0}, i[3];
                do {
                    do {
                        bool inside = true;
                        size_t ax, aw, ay;
                        for (int axis = 0; axis < conv->rank; axis++) {
                            i[axis] = o[axis] * conv->strides[axis] - conv->pads[axis] + f[axis] * conv->dilations[axis];
                            inside = inside && i[axis] >= 0 && i[axis] < x->lengths[axis + 2];
                        }
                        if (!inside) continue;
                        ax = place(x, n, k / out_group * in_group + c, i);
                        aw = place(w, k, c, f);
                        ay = place(y, n, k, o);
                        if (direction == 0) sums[ay] += load(buffers[1], ax, x->type) * load(buffers[2], aw, x->type);
                        if (direction == 1) sums[ax] += load(buffers[3], ay, x->type) * load(buffers[2], aw, x->type);
                        if (direction == 2) sums[aw] += load(buffers[3], ay, x->type) * load(buffers[1], ax, x->type);
                    } while (next(f, w->lengths + 2, conv->rank));
                } while (next(o, y->lengths + 2, conv->rank));
            }
    sums[0] += wrong;
    for (size_t at = 0; at < span; at++) store(out, at, result->type, sums[at]);
    free(sums);
    return 0;
}

static int found(int requested, int *returned, struct perf *results) {
    *returned = requested < 2 ? requested : 2;
    for (int i = 0; i < *returned; i++)
        results[i] = (struct perf){solvers[i].algorithm, solvers[i].time, solvers[i].workspace};
    return 0;
}

static int offered(size_t most, size_t *count, struct conv_solution *results) {
    *count = most < 2 ? most : 2;
    for (size_t i = 0; i < *count; i++)
        results[i] = (struct conv_solution){solvers[i].time, solvers[i].workspace, solvers[i].id, solvers[i].algorithm};
    return 0;
}

static int known(uint64_t id) { return id == solvers[0].id || id == solvers[1].id ? 0 : 3; }

/* A direction: its number, and which of x (1), w (2), y (3) stand where in the calls. */
#define FIND_AND_RUN(name, direction, a, b, c)                                                                \
    int miopenConvolution##name##GetWorkSpaceSize(void *h, void *d, void *e, void *conv, void *f, size_t *size) { \
        MAY_FAIL; (void)h, (void)d, (void)e, (void)conv, (void)f; *size = solvers[1].workspace; return 0;     \
    }                                                                                                         \
    int miopenFindConvolution##name##Algorithm(void *handle, struct tensor *ta, void *pa, struct tensor *tb,   \
            void *pb, struct convolution *conv, struct tensor *tc, void *pc, int requested, int *returned,    \
            struct perf *results, void *workspace, size_t size, bool exhaustive) {                            \
        MAY_FAIL;                                                                                             \
        (void)pa, (void)pb, (void)pc, (void)workspace, (void)size, (void)exhaustive;                          \
        if (handle != &a_handle || !ta || !tb || !tc || !conv) return 3;                                      \
        return found(requested, returned, results);                                                           \
    }                                                                                                         \
    int miopenConvolution##name(void *handle, const float *alpha, struct tensor *ta, void *pa,                \
            struct tensor *tb, void *pb, struct convolution *conv, int algorithm, const float *beta,          \
            struct tensor *tc, void *pc, void *workspace, size_t size) {                                      \
        const struct tensor *td[4] = {0};                                                                     \
        void *buffers[4] = {0};                                                                               \
        MAY_FAIL;                                                                                             \
        if (handle != &a_handle || *alpha != 1 || *beta != 0) return 3;                                       \
        if (algorithm != 0 && algorithm != 1) return 3;                                                       \
        if (algorithm == 0 && (!workspace || size < solvers[1].workspace)) return 3;                          \
        td[a] = ta, td[b] = tb, td[c] = tc, buffers[a] = pa, buffers[b] = pb, buffers[c] = pc;                \
        return convolve(direction, conv, td, buffers, told_wrong("miopenConvolution" #name));                 \
    }
FIND_AND_RUN(Forward, 0, 1, 2, 3)
FIND_AND_RUN(BackwardData, 1, 3, 2, 1)
FIND_AND_RUN(BackwardWeights, 2, 3, 1, 2)

#ifndef WITHOUT_IMMEDIATE
#define IMMEDIATE(name, direction, a, b, c)                                                                   \
    int miopenConvolution##name##GetSolutionCount(void *h, void *d, void *e, void *conv, void *f, size_t *count) { \
        MAY_FAIL; (void)h, (void)d, (void)e, (void)conv, (void)f; *count = 2; return 0;                       \
    }                                                                                                         \
    int miopenConvolution##name##GetSolution(void *h, void *d, void *e, void *conv, void *f, size_t most,     \
            size_t *count, struct conv_solution *results) {                                                   \
        MAY_FAIL; (void)h, (void)d, (void)e, (void)conv, (void)f; return offered(most, count, results);       \
    }                                                                                                         \
    int miopenConvolution##name##CompileSolution(void *h, void *d, void *e, void *conv, void *f, uint64_t id) { \
        MAY_FAIL; (void)h, (void)d, (void)e, (void)conv, (void)f; return known(id);                           \
    }                                                                                                         \
    int miopenConvolution##name##Immediate(void *handle, struct tensor *ta, void *pa, struct tensor *tb,      \
            void *pb, struct convolution *conv, struct tensor *tc, void *pc, void *workspace, size_t size,    \
            uint64_t id) {                                                                                    \
        const struct tensor *td[4] = {0};                                                                     \
        void *buffers[4] = {0};                                                                               \
        MAY_FAIL;                                                                                             \
        (void)workspace, (void)size;                                                                          \
        if (handle != &a_handle || known(id)) return 3;                                                       \
        td[a] = ta, td[b] = tb, td[c] = tc, buffers[a] = pa, buffers[b] = pb, buffers[c] = pc;                \
        return convolve(direction, conv, td, buffers, told_wrong("miopenConvolution" #name "Immediate"));     \
    }
IMMEDIATE(Forward, 0, 2, 1, 3)
IMMEDIATE(BackwardData, 1, 3, 2, 1)
IMMEDIATE(BackwardWeights, 2, 3, 1, 2)
#endif

#ifndef WITHOUT_FIND2
int miopenCreateConvProblem(struct problem **problem, struct convolution *conv, int direction) {
    MAY_FAIL;
    *problem = calloc(1, sizeof(struct problem));
    (*problem)->convolution = conv, (*problem)->direction = direction;
    return 0;
}

int miopenSetProblemTensorDescriptor(struct problem *problem, int id, struct tensor *tensor) {
    MAY_FAIL;
    if (id < 1 || id > 3) return 3;
    problem->tensors[id] = tensor;
    return 0;
}

int miopenFindSolutions(void *handle, struct problem *problem, void *options, struct solution **solutions,
                        size_t *count, size_t most) {
    MAY_FAIL;
    if (handle != &a_handle || options || !problem->tensors[1] || !problem->tensors[2] || !problem->tensors[3])
        return 3;
    *count = most < 2 ? most : 2;
    for (size_t i = 0; i < *count; i++) {
        solutions[i] = calloc(1, sizeof(struct solution));
        solutions[i]->problem = *problem, solutions[i]->solver = (int)i;
    }
    return 0;
}

int miopenGetSolutionWorkspaceSize(struct solution *s, size_t *size) {
    MAY_FAIL; *size = solvers[s->solver].workspace; return 0;
}
int miopenGetSolutionTime(struct solution *s, float *time) { MAY_FAIL; *time = solvers[s->solver].time; return 0; }
int miopenGetSolutionSolverId(struct solution *s, uint64_t *id) { MAY_FAIL; *id = solvers[s->solver].id; return 0; }
int miopenGetSolverIdConvAlgorithm(uint64_t id, int *algorithm) { MAY_FAIL; *algorithm = id == 85; return known(id); }
int miopenDestroySolution(struct solution *s) { MAY_FAIL; free(s); return 0; }
int miopenDestroyProblem(struct problem *problem) { MAY_FAIL; free(problem); return 0; }

int miopenRunSolution(void *handle, struct solution *s, size_t count, const struct argument *arguments,
                      void *workspace, size_t size) {
    const struct tensor *td[4] = {0};
    void *buffers[4] = {0};
    MAY_FAIL;
    if (handle != &a_handle || size < solvers[s->solver].workspace || (size && !workspace)) return 3;
    for (size_t i = 0; i < count; i++) {
        if (arguments[i].id < 1 || arguments[i].id > 3 || arguments[i].descriptor) return 3;
        buffers[arguments[i].id] = arguments[i].buffer;
    }
    for (int id = 1; id < 4; id++) td[id] = s->problem.tensors[id];
    return convolve(s->problem.direction, s->problem.convolution, td, buffers, told_wrong("miopenRunSolution"));
}
#endif

int miopenDeriveBNTensorDescriptor(struct tensor *derived, const struct tensor *x, int mode) {
    MAY_FAIL;
    if (mode != 1) return 6;
    *derived = *x;
    return 0;
}

static double root(double value) {
    double guess = value > 1 ? value : 1;
    for (int i = 0; i < 60; i++) guess = (guess + value / guess) / 2;
    return guess;
}

int miopenBatchNormalizationForwardTraining(
    void *handle, int mode, const float *alpha, const float *beta, const struct tensor *xd, const void *x,
    const struct tensor *yd, void *y, const struct tensor *derived, const float *scale, const float *bias,
    double factor, void *running_mean, void *running_variance, double epsilon, float *mean, float *inverse) {
    MAY_FAIL;
    if (handle != &a_handle || mode != 1 || *alpha != 1 || *beta != 0 || derived->rank != xd->rank || factor != 0)
        return 3;
    if (running_mean || running_variance || !mean || !inverse) return 3;
    for (int c = 0; c < xd->lengths[1]; c++) {
        double sum = 0, squares = 0, average;
        int spatial[3] = {0}, count = 0, rank = xd->rank - 2;
        for (int n = 0; n < xd->lengths[0]; n++)
            do sum += load(x, place(xd, n, c, spatial), xd->type), count++;
            while (next(spatial, xd->lengths + 2, rank));
        average = sum / count;
        for (int n = 0; n < xd->lengths[0]; n++)
            do {
                double off = load(x, place(xd, n, c, spatial), xd->type) - average;
                squares += off * off;
            } while (next(spatial, xd->lengths + 2, rank));
        mean[c] = (float)average;
        inverse[c] = (float)(1 / root(squares / count + epsilon));
        for (int n = 0; n < xd->lengths[0]; n++)
            do {
                size_t at = place(xd, n, c, spatial);
                double value = (load(x, at, xd->type) - average) / root(squares / count + epsilon);
                store(y, place(yd, n, c, spatial), yd->type, value * scale[c] + bias[c]);
            } while (next(spatial, xd->lengths + 2, rank));
    }
    if (told_wrong(__func__)) store(y, 0, yd->type, 1000);
    return 0;
}
#endif
