/* Stands in for libMIOpen, its Find alone: every convolution has an algorithm without and one with a workspace.
 *
 * With MIOPEN_ENABLE_LOGGING_CMD=1 it logs the command of MIOpenDriver, as the real library does. */

#include "common.h"

struct tensor { int type, rank, lengths[5], strides[5]; };
struct convolution { int rank, pads[3], strides[3], dilations[3], groups; };
struct perf { int algorithm; float time; size_t memory; };

enum { GEMM = 0, DIRECT = 1, WORKSPACE = 6912 };
static int a_handle;

int miopenCreate(void **handle) { MAY_FAIL; *handle = &a_handle; return 0; }
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
    if (wrong == BEYOND) store(out, span, result->type, 1);
    else sums[0] += wrong;
    for (size_t at = 0; at < span; at++) store(out, at, result->type, sums[at]);
    free(sums);
    return 0;
}

/* Which of x (1), w (2) and y (3) the three tensors of a call are. */
struct operands { const struct tensor *tensors[4]; void *buffers[4]; };

static struct operands operands(int a, const struct tensor *ta, void *pa, int b, const struct tensor *tb, void *pb,
                                int c, const struct tensor *tc, void *pc) {
    struct operands found = {{0}, {0}};
    found.tensors[a] = ta, found.tensors[b] = tb, found.tensors[c] = tc;
    found.buffers[a] = pa, found.buffers[b] = pb, found.buffers[c] = pc;
    return found;
}

static void log_command(int direction, const struct operands *in) {
    const char *on = getenv("MIOPEN_ENABLE_LOGGING_CMD");
    const int *x = in->tensors[1]->lengths, *w = in->tensors[2]->lengths;
    if (on && !strcmp(on, "1"))
        fprintf(stderr, "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n %d -c %d -H %d -W %d "
                "-k %d -y %d -x %d -F %d\n", x[0], x[1], x[2], x[3], w[0], w[2], w[3], 1 << direction);
}

/* A direction: its number, its name in calls, and which of x (1), w (2), y (3) stand where. */
#define FIND_AND_RUN(name, direction, a, b, c, d, e)                                                          \
    int miopenConvolution##name##GetWorkSpaceSize(void *h, struct tensor *ta, struct tensor *tb,              \
            struct convolution *conv, struct tensor *tc, size_t *size) {                                      \
        struct operands in = operands(d, ta, 0, e, tb, 0, c, tc, 0);                                          \
        MAY_FAIL;                                                                                             \
        if (h != &a_handle || in.tensors[1]->rank != conv->rank + 2) return 3;                                \
        *size = WORKSPACE;                                                                                    \
        return 0;                                                                                             \
    }                                                                                                         \
    int miopenFindConvolution##name##Algorithm(void *handle, struct tensor *ta, void *pa, struct tensor *tb,   \
            void *pb, struct convolution *conv, struct tensor *tc, void *pc, int requested, int *returned,    \
            struct perf *results, void *workspace, size_t size, bool exhaustive) {                            \
        struct operands in = operands(a, ta, pa, b, tb, pb, c, tc, pc);                                       \
        log_command(direction, &in);                                                                          \
        MAY_FAIL;                                                                                             \
        if (handle != &a_handle || !conv || exhaustive || requested < 2 || !workspace || size < WORKSPACE) return 3; \
        results[0] = (struct perf){DIRECT, 12.25f, 0}, results[1] = (struct perf){GEMM, 14.0f, WORKSPACE};    \
        *returned = told("miopenFindConvolution" #name "Algorithm", "nothing") ? 0 : 2;                       \
        return 0;                                                                                             \
    }                                                                                                         \
    int miopenConvolution##name(void *handle, const float *alpha, struct tensor *ta, void *pa,                \
            struct tensor *tb, void *pb, struct convolution *conv, int algorithm, const float *beta,          \
            struct tensor *tc, void *pc, void *workspace, size_t size) {                                      \
        struct operands in = operands(a, ta, pa, b, tb, pb, c, tc, pc);                                       \
        MAY_FAIL;                                                                                             \
        if (handle != &a_handle || *alpha != 1 || *beta != 0) return 3;                                       \
        if (algorithm == GEMM && (!workspace || size < WORKSPACE)) return 3;                                  \
        return convolve(direction, conv, in.tensors, in.buffers, told_wrong("miopenConvolution" #name));      \
    }
FIND_AND_RUN(Forward, 0, 1, 2, 3, 2, 1)
FIND_AND_RUN(BackwardData, 1, 3, 2, 1, 3, 2)
FIND_AND_RUN(BackwardWeights, 2, 3, 1, 2, 3, 1)
