/* Stands in for libMIOpen 3.4; -DWITHOUT_FIND2 and -DWITHOUT_IMMEDIATE leave symbols
 * out as other releases and builds do. */

#include "common.h"
#include "solvers.h"

struct problem { struct convolution *convolution; int direction; struct tensor *tensors[4]; };
struct solution { struct problem problem; const struct solver *solver; };
struct perf { int algorithm; float time; size_t memory; };
struct conv_solution { float time; size_t workspace; uint64_t id; int algorithm; };
struct argument { int id; void *descriptor; void *buffer; };

static int a_handle;

int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) {
    MAY_FAIL;
    *major = 3, *minor = 4, *patch = 0;
    return 0;
}

int miopenCreate(void **handle) {
    MAY_FAIL;
    info("get_device_name", "Raw device name: gfx1010:xnack-");
    info("Handle", "stream: 0, device_id: 0");
    *handle = &a_handle;
    return 0;
}

int miopenDestroy(void *handle) { MAY_FAIL; return handle == &a_handle ? 0 : 3; }
int miopenCreateTensorDescriptor(void **d) { MAY_FAIL; *d = calloc(1, sizeof(struct tensor)); return 0; }
int miopenDestroyTensorDescriptor(void *d) { MAY_FAIL; free(d); return 0; }
int miopenDestroyConvolutionDescriptor(void *d) { MAY_FAIL; free(d); return 0; }
int miopenSetConvolutionGroupCount(struct convolution *c, int groups) { MAY_FAIL; c->groups = groups; return 0; }

int miopenCreateConvolutionDescriptor(void **d) {
    static const char *const names[] = {"", "NORMAL", "FAST", "HYBRID", "", "DYNAMIC_HYBRID"};
    enum mode mode = find_mode();
    MAY_FAIL;
    if (mode == UNREADABLE) {
        fprintf(stderr, "MIOpen Error: stoul\n");
        return 7;
    }
    info("", "MIOPEN_FIND_MODE = %s(%d)", names[mode], mode);
    *d = calloc(1, sizeof(struct convolution));
    return 0;
}

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

static const struct solver *by_id(uint64_t id) {
    for (int i = 0; i < SOLVERS; i++)
        if (solvers[i].id == id) return &solvers[i];
    return NULL;
}

static const char *title(const struct solver *s) { return s->name; }

static int workspace_size(int direction, const struct convolution *conv, const struct tensor *x, const struct tensor *w,
                          size_t *size) {
    int status = only_known();
    *size = 0;
    for (int i = 0; i < SOLVERS && !status; i++)
        if (applies(&solvers[i], direction, conv, x, w) && solvers[i].workspace > *size) *size = solvers[i].workspace;
    if (!status) info("GetWorkSpaceSize", "%zu", *size);
    return status;
}

static int find(int direction, const char *logger, const char *prefix, const struct convolution *conv,
                const struct tensor *x, const struct tensor *w, int requested, int *returned, struct perf *results,
                size_t size) {
    const struct solver *found[SOLVERS];
    int count, status;
    info(logger, "requestAlgoCount = %d, workspace = %zu", requested, size);
    status = search(direction, conv, x, w, found, &count);
    if (status) return status;
    info("FillFindReturnParameters", "%s Chosen Algorithm: %s , %zu, %g", prefix, found[0]->name, found[0]->workspace,
         found[0]->time);
    *returned = requested < count ? requested : count;
    for (int i = 0; i < *returned; i++)
        results[i] = (struct perf){found[i]->algorithm, found[i]->time, found[i]->workspace};
    return 0;
}

static int run(int direction, int algorithm, const struct convolution *conv, struct operands *in, void *workspace,
               size_t size, int wrong) {
    for (int i = 0; i < SOLVERS; i++) {
        const struct solver *s = &solvers[i];
        if (s->algorithm != algorithm || !applies(s, direction, conv, in->tensors[1], in->tensors[2])) continue;
        if (s->workspace && (!workspace || size < s->workspace)) return 3;
        return convolve(direction, conv, in->tensors, in->buffers, wrong ? wrong : wrong_numbers(s));
    }
    fprintf(stderr, "MIOpen Error: src/ocl/convolutionocl.cpp:401: No invoker was registered for convolution. "
            "Was find executed?\n");
    return 3;
}

static int offered(int direction, const struct convolution *conv, const struct tensor *x, const struct tensor *w,
                   size_t most, size_t *count, struct conv_solution *results) {
    int status = only_known();
    *count = 0;
    for (int i = 0; i < SOLVERS && !status; i++) {
        const struct solver *s = &solvers[i];
        if (!applies(s, direction, conv, x, w) || *count == most) continue;
        if (results) results[*count] = (struct conv_solution){s->time, s->workspace, s->id, s->algorithm};
        ++*count;
    }
    return status;
}

static int compiled(uint64_t id) {
    const struct solver *s = by_id(id);
    int status;
    if (!s) return 3;
    info("CompileSolution", "solver_id = %s", s->name);
    status = built(s);
    return status < 0 ? 7 : status;
}

/* A direction: its number, its names in calls and in the log, and which of x (1), w (2), y (3) stand where. */
#define FIND_AND_RUN(name, log, prefix, direction, a, b, c, d, e)                                             \
    int miopenConvolution##name##GetWorkSpaceSize(void *h, struct tensor *ta, struct tensor *tb,              \
            struct convolution *conv, struct tensor *tc, size_t *size) {                                      \
        struct operands in = operands(d, ta, 0, e, tb, 0, c, tc, 0);                                          \
        MAY_FAIL; (void)h;                                                                                    \
        return workspace_size(direction, conv, in.tensors[1], in.tensors[2], size);                           \
    }                                                                                                         \
    int miopenFindConvolution##name##Algorithm(void *handle, struct tensor *ta, void *pa, struct tensor *tb,   \
            void *pb, struct convolution *conv, struct tensor *tc, void *pc, int requested, int *returned,    \
            struct perf *results, void *workspace, size_t size, bool exhaustive) {                            \
        struct operands in = operands(a, ta, pa, b, tb, pb, c, tc, pc);                                       \
        MAY_FAIL;                                                                                             \
        (void)workspace, (void)exhaustive;                                                                    \
        if (handle != &a_handle || !ta || !tb || !tc || !conv) return 3;                                      \
        return find(direction, "FindConv" log "Algorithm", prefix, conv, in.tensors[1], in.tensors[2],        \
                    requested, returned, results, size);                                                      \
    }                                                                                                         \
    int miopenConvolution##name(void *handle, const float *alpha, struct tensor *ta, void *pa,                \
            struct tensor *tb, void *pb, struct convolution *conv, int algorithm, const float *beta,          \
            struct tensor *tc, void *pc, void *workspace, size_t size) {                                      \
        struct operands in = operands(a, ta, pa, b, tb, pb, c, tc, pc);                                       \
        MAY_FAIL;                                                                                             \
        if (handle != &a_handle || *alpha != 1 || *beta != 0) return 3;                                       \
        info("Convolution" #name, "algo = %d, workspace = %zu", algorithm, size);                             \
        return run(direction, algorithm, conv, &in, workspace, size, told_wrong("miopenConvolution" #name));  \
    }
FIND_AND_RUN(Forward, "Fwd", "FW", 0, 1, 2, 3, 2, 1)
FIND_AND_RUN(BackwardData, "BwdData", "BWD", 1, 3, 2, 1, 3, 2)
FIND_AND_RUN(BackwardWeights, "BwdWeights", "WRW", 2, 3, 1, 2, 3, 1)

#ifndef WITHOUT_IMMEDIATE
#define IMMEDIATE(name, log, direction, a, b, c)                                                              \
    int miopenConvolution##name##GetSolutionCount(void *h, struct tensor *ta, struct tensor *tb,              \
            struct convolution *conv, struct tensor *tc, size_t *count) {                                     \
        struct operands in = operands(a, ta, 0, b, tb, 0, c, tc, 0);                                          \
        MAY_FAIL; (void)h;                                                                                    \
        return offered(direction, conv, in.tensors[1], in.tensors[2], SOLVERS, count, NULL);                  \
    }                                                                                                         \
    int miopenConvolution##name##GetSolution(void *h, struct tensor *ta, struct tensor *tb,                   \
            struct convolution *conv, struct tensor *tc, size_t most, size_t *count,                          \
            struct conv_solution *results) {                                                                  \
        struct operands in = operands(a, ta, 0, b, tb, 0, c, tc, 0);                                          \
        MAY_FAIL; (void)h;                                                                                    \
        return offered(direction, conv, in.tensors[1], in.tensors[2], most, count, results);                  \
    }                                                                                                         \
    int miopenConvolution##name##CompileSolution(void *h, void *d, void *e, void *conv, void *f, uint64_t id) { \
        MAY_FAIL; (void)h, (void)d, (void)e, (void)conv, (void)f; return compiled(id);                        \
    }                                                                                                         \
    int miopenConvolution##name##Immediate(void *handle, struct tensor *ta, void *pa, struct tensor *tb,      \
            void *pb, struct convolution *conv, struct tensor *tc, void *pc, void *workspace, size_t size,    \
            uint64_t id) {                                                                                    \
        struct operands in = operands(a, ta, pa, b, tb, pb, c, tc, pc);                                       \
        const struct solver *s = by_id(id);                                                                   \
        MAY_FAIL;                                                                                             \
        if (handle != &a_handle || !s) return 3;                                                              \
        info("Convolution" log "Immediate", "solver_id = %s, workspace = %zu", title(s), size);               \
        return run(direction, s->algorithm, conv, &in, workspace, size,                                       \
                   told_wrong("miopenConvolution" #name "Immediate"));                                        \
    }
IMMEDIATE(Forward, "Forward", 0, 2, 1, 3)
IMMEDIATE(BackwardData, "Backward", 1, 3, 2, 1)
IMMEDIATE(BackwardWeights, "Wrw", 2, 3, 1, 2)
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
    const struct solver *found[SOLVERS];
    int number, status;
    MAY_FAIL;
    if (handle != &a_handle || options || !problem->tensors[1] || !problem->tensors[2] || !problem->tensors[3])
        return 3;
    status = search(problem->direction, problem->convolution, problem->tensors[1], problem->tensors[2], found, &number);
    if (status) return status;
    *count = most < (size_t)number ? most : (size_t)number;
    for (size_t i = 0; i < *count; i++) {
        info("FindSolutions", "Found solution: %s , %zu, %g", found[i]->name, found[i]->workspace, found[i]->time);
        solutions[i] = calloc(1, sizeof(struct solution));
        solutions[i]->problem = *problem, solutions[i]->solver = found[i];
    }
    return 0;
}

int miopenGetSolutionWorkspaceSize(struct solution *s, size_t *size) { MAY_FAIL; *size = s->solver->workspace; return 0; }
int miopenGetSolutionTime(struct solution *s, float *time) { MAY_FAIL; *time = s->solver->time; return 0; }
int miopenGetSolutionSolverId(struct solution *s, uint64_t *id) { MAY_FAIL; *id = s->solver->id; return 0; }

int miopenGetSolverIdConvAlgorithm(uint64_t id, int *algorithm) {
    MAY_FAIL;
    if (!by_id(id)) return 3;
    *algorithm = by_id(id)->algorithm;
    return 0;
}

int miopenDestroySolution(struct solution *s) { MAY_FAIL; free(s); return 0; }
int miopenDestroyProblem(struct problem *problem) { MAY_FAIL; free(problem); return 0; }

int miopenRunSolution(void *handle, struct solution *s, size_t count, const struct argument *arguments,
                      void *workspace, size_t size) {
    struct operands in = {{0}, {0}};
    MAY_FAIL;
    if (handle != &a_handle || size < s->solver->workspace || (size && !workspace)) return 3;
    for (size_t i = 0; i < count; i++) {
        if (arguments[i].id < 1 || arguments[i].id > 3 || arguments[i].descriptor) return 3;
        in.buffers[arguments[i].id] = arguments[i].buffer;
    }
    for (int id = 1; id < 4; id++) in.tensors[id] = s->problem.tensors[id];
    return convolve(s->problem.direction, s->problem.convolution, in.tensors, in.buffers,
                    told_wrong("miopenRunSolution") ? told_wrong("miopenRunSolution") : wrong_numbers(s->solver));
}
#endif
