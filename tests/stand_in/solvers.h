#include <stdarg.h>

/* Which solvers there are, which apply, what they do when they are told to fail; with the log lines of the real
 * library at level 5 (MIOpen 3.4.0 on a gfx1010, and of its Winograd where there is an assembler).
 *
 * LC_STAND_IN_NAIVE, LC_STAND_IN_GEMM and LC_STAND_IN_WINOGRAD tell what a solver does wherever it is built:
 * status:N (the search fails with N), compile (it is dropped and the search goes on), abort, segv, hang; or
 * wrong: it computes one wrong number. */

struct tensor { int type, rank, lengths[5], strides[5]; };
struct convolution { int rank, pads[3], strides[3], dilations[3], groups; };

struct solver {
    const char *name;
    uint64_t id;
    int direction, algorithm; /* direction 3: forward and backward data */
    float time;
    size_t workspace;
    const char *told;
    const char *switches[3];
};

/* The fastest first. */
static const struct solver solvers[] = {
    {"ConvBinWinogradRxSf2x3", 53, 3, 3, 3.5f, 0, "LC_STAND_IN_WINOGRAD",
     {"MIOPEN_DEBUG_CONV_WINOGRAD", "MIOPEN_DEBUG_GCN_ASM_KERNELS",
      "MIOPEN_DEBUG_AMD_WINOGRAD_RXS_F2X3"}},
    {"ConvDirectNaiveConvFwd", 85, 0, 1, 12.25f, 0, "LC_STAND_IN_NAIVE",
     {"MIOPEN_DEBUG_CONV_DIRECT", "MIOPEN_DEBUG_HIP_KERNELS", "MIOPEN_DEBUG_CONV_DIRECT_NAIVE_CONV_FWD"}},
    {"ConvDirectNaiveConvBwd", 86, 1, 1, 12.25f, 0, "LC_STAND_IN_NAIVE",
     {"MIOPEN_DEBUG_CONV_DIRECT", "MIOPEN_DEBUG_HIP_KERNELS", "MIOPEN_DEBUG_CONV_DIRECT_NAIVE_CONV_BWD"}},
    {"ConvDirectNaiveConvWrw", 87, 2, 1, 12.25f, 0, "LC_STAND_IN_NAIVE",
     {"MIOPEN_DEBUG_CONV_DIRECT", "MIOPEN_DEBUG_HIP_KERNELS", "MIOPEN_DEBUG_CONV_DIRECT_NAIVE_CONV_WRW"}},
    {"GemmFwdRest", 91, 0, 0, 14.0f, 6912, "LC_STAND_IN_GEMM", {"MIOPEN_DEBUG_CONV_GEMM", NULL, NULL}},
    {"GemmBwdRest", 97, 1, 0, 14.0f, 6912, "LC_STAND_IN_GEMM", {"MIOPEN_DEBUG_CONV_GEMM", NULL, NULL}},
    {"GemmWrwUniversal", 102, 2, 0, 14.0f, 6912, "LC_STAND_IN_GEMM", {"MIOPEN_DEBUG_CONV_GEMM", NULL, NULL}},
};
enum { SOLVERS = sizeof solvers / sizeof *solvers };
/* Names that the library knows and that never apply here. */
static const char *const others[] = {"ConvAsm1x1U", "ConvAsm3x3U", "ConvOclDirectFwd", "ConvBinWinogradRxSf3x2",
                                     "ConvHipImplicitGemmV4R1Fwd", "fft", "GemmFwd1x1_0_1"};
static const char *const families[] = {"GEMM", "Direct", "FFT", "Winograd"};
static const char *const directions[] = {"Fwd", "BwdData", "WrW"};

static const char *variable(const char *name) { const char *value = getenv(name); return value ? value : ""; }

static void info(const char *function, const char *format, ...) {
    va_list arguments;
    if (atoi(variable("MIOPEN_LOG_LEVEL")) < 5) return;
    fprintf(stderr, "MIOpen(HIP): Info [%s] ", function);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

enum mode { UNREADABLE = -1, NORMAL = 1, FAST = 2, HYBRID = 3, DYNAMIC_HYBRID = 5 };

static enum mode find_mode(void) {
    static const char *const words[] = {NULL, "NORMAL", "FAST", "HYBRID", NULL, "DYNAMIC_HYBRID"};
    const char *told = variable("MIOPEN_FIND_MODE");
    int number = atoi(told);
    if (!*told) return DYNAMIC_HYBRID;
    for (int mode = 1; mode < 6; mode++)
        if (words[mode] && !strcmp(told, words[mode])) return mode;
    if (strspn(told, "0123456789") != strlen(told)) return UNREADABLE;
    return number < 6 && words[number] ? number : DYNAMIC_HYBRID;
}

static bool named(const char *list, const char *name) {
    size_t length = strlen(name);
    for (; list && *list; list = strchr(list, ';') ? strchr(list, ';') + 1 : NULL)
        if (!strncmp(list, name, length) && (!list[length] || list[length] == ';')) return true;
    return false;
}

/* Status 3 for a name in MIOPEN_DEBUG_FIND_ONLY_SOLVER that is none. */
static int only_known(void) {
    char name[256];
    for (const char *list = variable("MIOPEN_DEBUG_FIND_ONLY_SOLVER"); *list; ) {
        size_t length = strcspn(list, ";");
        bool known = false;
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        for (int i = 0; i < SOLVERS; i++) known = known || !strcmp(name, solvers[i].name);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) known = known || !strcmp(name, others[i]);
        if (!known) {
            fprintf(stderr, "MIOpen Error: src/find_controls.cpp:143: Invalid value of "
                    "MIOPEN_DEBUG_FIND_ONLY_SOLVER: %s\n", name);
            return 3;
        }
        list += length + (list[length] == ';');
    }
    return 0;
}

static bool applies(const struct solver *s, int direction, const struct convolution *conv, const struct tensor *x,
                    const struct tensor *w) {
    const char *only = variable("MIOPEN_DEBUG_FIND_ONLY_SOLVER");
    if (s->direction == 3 ? direction > 1 : s->direction != direction) return false;
    if (*only && !named(only, s->name)) return false;
    for (int i = 0; i < 3 && s->switches[i]; i++)
        if (!strcmp(variable(s->switches[i]), "0")) return false;
    if (s->algorithm != 3) return true;
    if (conv->rank != 2 || conv->groups != 1 || x->type == DOUBLE || x->lengths[1] < 4 || x->strides[1] == 1)
        return false;
    for (int axis = 0; axis < 2; axis++)
        if (w->lengths[axis + 2] != 3 || conv->strides[axis] != 1 || conv->dilations[axis] != 1) return false;
    return true;
}

/* What a solver is told to do when it is built: a status, or -1 where it is dropped. */
static int built(const struct solver *s) {
    const char *told = variable(s->told);
    if (!strncmp(told, "abort", 5)) abort();
    if (!strncmp(told, "segv", 4)) raise(SIGSEGV);
    if (!strncmp(told, "hang", 4))
        for (;;) pause();
    if (!strncmp(told, "compile", 7)) {
        fprintf(stderr, "MIOpen(HIP): Error [EvaluateInvokers] src/hipoc/hipoc_program.cpp:257: Cant find file: "
                "/tmp/miopen-%s.cl-aa01/%s.cl.o\n", s->name, s->name);
        return -1;
    }
    if (strncmp(told, "status:", 7)) return 0;
    fprintf(stderr, "MIOpen Error: src/hipoc/hipoc_program.cpp:304: Code object build failed. Source: %s.s\n", s->name);
    return atoi(told + 7);
}

static bool wrong_numbers(const struct solver *s) { return !strncmp(variable(s->told), "wrong", 5); }

/* The find database: a line for each problem with the solver that was the fastest. */
static void record_key(char *key, size_t size, int direction, const struct convolution *conv, const struct tensor *x,
                       const struct tensor *w) {
    size_t at = (size_t)snprintf(key, size, "%d-%d-%d", direction, x->type, conv->groups);
    for (int axis = 0; axis < x->rank; axis++)
        at += (size_t)snprintf(key + at, size - at, "-%dx%d/%d", x->lengths[axis], w->lengths[axis], x->strides[axis]);
    for (int axis = 0; axis < conv->rank; axis++)
        at += (size_t)snprintf(key + at, size - at, "-%d,%d,%d", conv->pads[axis], conv->strides[axis],
                               conv->dilations[axis]);
}

static FILE *database(const char *how) {
    char path[4096];
    if (!*variable("MIOPEN_USER_DB_PATH") || !strcmp(variable("MIOPEN_DEBUG_DISABLE_FIND_DB"), "1")) return NULL;
    snprintf(path, sizeof path, "%s/gfx1010_20.HIP.3_4_0_.ufdb.txt", variable("MIOPEN_USER_DB_PATH"));
    return fopen(path, how);
}

static const struct solver *recorded(const char *key) {
    char line[1024];
    const struct solver *found = NULL;
    FILE *file = database("r");
    while (file && fgets(line, sizeof line, file)) {
        char *name = strchr(line, '=');
        if (!name) continue;
        *name++ = 0, name[strcspn(name, "\n")] = 0;
        for (int i = 0; i < SOLVERS && !strcmp(line, key); i++)
            if (!strcmp(name, solvers[i].name)) found = &solvers[i];
    }
    if (file) fclose(file);
    return found;
}

static int nothing_left(void) {
    fprintf(stderr, "MIOpen Error: src/ocl/convolutionocl.cpp:275: No suitable algorithm was found to execute the "
            "required convolution\n");
    return 7;
}

/* What the search gives, the fastest first; as MIOPEN_FIND_MODE says, one of them or all. */
static int search(int direction, const struct convolution *conv, const struct tensor *x, const struct tensor *w,
                  const struct solver **result, int *count) {
    const struct solver *able[SOLVERS], *record;
    int number = 0, status = only_known();
    enum mode mode = find_mode();
    char key[512];
    FILE *file;
    *count = 0;
    if (status) return status;
    for (int i = 0; i < SOLVERS; i++)
        if (applies(&solvers[i], direction, conv, x, w)) able[number++] = &solvers[i];
    info("GetSolutions", "");
    record_key(key, sizeof key, direction, conv, x, w);
    record = mode == NORMAL ? NULL : recorded(key);
    if (record || mode == FAST) {
        /* The heuristic holds GEMM to be the fastest, whatever is. */
        const struct solver *one = record ? record : number ? able[number - 1] : NULL;
        if (!one) return nothing_left();
        if ((status = built(one))) return status < 0 ? nothing_left() : status;
        result[(*count)++] = one;
        return 0;
    }
    info("TryLoad", "Find-db regenerating.");
    for (int i = 0; i < number; i++) {
        if ((status = built(able[i])) > 0) return status;
        if (status) continue;
        info("EvaluateInvokers", "%s: kernel: %g < 3.40282e+38", able[i]->name, able[i]->time);
        info("EvaluateInvokers", "Selected: %s: kernel: %g, workspace_sz = %zu", able[i]->name, able[i]->time,
             able[i]->workspace);
        info("FindConvolution", "miopenConvolution%sAlgo%s\t%g\t%zu", directions[direction],
             families[able[i]->algorithm], able[i]->time, able[i]->workspace);
        result[(*count)++] = able[i];
    }
    if (!*count) return nothing_left();
    if ((file = database("a"))) {
        fprintf(file, "%s=%s\n", key, result[0]->name);
        fclose(file);
    }
    return 0;
}
