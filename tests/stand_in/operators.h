/* Tensor operations, bias and fusion plans of the stand-in for libMIOpen. A plan is compiled as in MIOpen 3.4.0:
 * convolution, bias and ReLU in float32, batch norm and ReLU; anything else is status 8. */

static size_t at_index(const struct tensor *t, const int *index) {
    size_t at = 0;
    for (int axis = 0; axis < t->rank; axis++) at += (size_t)(t->lengths[axis] == 1 ? 0 : index[axis]) * t->strides[axis];
    return at;
}

/* The element after the last one of a tensor. */
static size_t end_of(const struct tensor *t) {
    size_t at = 1;
    for (int axis = 0; axis < t->rank; axis++) at += (size_t)(t->lengths[axis] - 1) * t->strides[axis];
    return at;
}

static void spoil(const struct tensor *t, void *memory, int wrong) {
    if (wrong) store(memory, wrong == BEYOND ? end_of(t) : 0, t->type, 100);
}

int miopenOpTensor(void *handle, int operation, const float *alpha, const struct tensor *ad, const void *a,
                   const float *factor, const struct tensor *bd, const void *b, const float *beta,
                   const struct tensor *cd, void *c) {
    int index[5] = {0};
    MAY_FAIL;
    if (handle != &a_handle || ad->rank != cd->rank || bd->rank != cd->rank) return 3;
    do {
        double x = *alpha * load(a, at_index(ad, index), ad->type), y = *factor * load(b, at_index(bd, index), bd->type);
        double value = operation == 0 ? x + y : operation == 1 ? x * y : (operation == 2) == (x < y) ? x : y;
        size_t at = at_index(cd, index);
        store(c, at, cd->type, value + *beta * load(c, at, cd->type));
    } while (next(index, cd->lengths, cd->rank));
    spoil(cd, c, told_wrong(__func__));
    return 0;
}

static void copy_elements(const struct tensor *xd, const void *x, const struct tensor *yd, void *y) {
    int index[5] = {0};
    do store(y, at_index(yd, index), yd->type, load(x, at_index(xd, index), xd->type));
    while (next(index, yd->lengths, yd->rank));
}

int miopenTransformTensor(void *handle, const float *alpha, const struct tensor *xd, const void *x, const float *beta,
                          const struct tensor *yd, void *y) {
    MAY_FAIL;
    if (handle != &a_handle || *alpha != 1 || *beta != 0 || xd->type != yd->type) return 3;
    copy_elements(xd, x, yd, y);
    spoil(yd, y, told_wrong(__func__));
    return 0;
}

#ifndef WITHOUT_INTERNALS
void _ZN6miopen10CopyTensorERKNS_6HandleERKNS_16TensorDescriptorEPKvS5_Pviib(
    void *handle, const struct tensor *xd, const void *x, const struct tensor *yd, void *y, int from, int to, bool force) {
    if (failing("CopyTensor") || handle != &a_handle || xd->type != yd->type || from || to || force) abort();
    copy_elements(xd, x, yd, y);
    spoil(yd, y, told_wrong("CopyTensor"));
}

/* As in ROCm 6.0: no argument clamps. */
void _ZN6miopen10CastTensorERKNS_6HandleEPKvRKNS_16TensorDescriptorES4_S7_Pvii(
    void *handle, const float *alpha, const struct tensor *xd, const void *x, const struct tensor *yd, void *y, int from,
    int to) {
    if (failing("CastTensor") || handle != &a_handle || *alpha != 1 || from || to) abort();
    copy_elements(xd, x, yd, y);
    spoil(yd, y, told_wrong("CastTensor"));
}
#endif

/* Every element becomes factor times itself plus summand. */
static void change(const struct tensor *t, void *memory, double factor, double summand) {
    int index[5] = {0};
    do {
        size_t at = at_index(t, index);
        store(memory, at, t->type, factor * load(memory, at, t->type) + summand);
    } while (next(index, t->lengths, t->rank));
}

int miopenSetTensor(void *handle, const struct tensor *t, void *memory, const void *value) {
    MAY_FAIL;
    if (handle != &a_handle) return 3;
    change(t, memory, 0, load(value, 0, t->type));
    spoil(t, memory, told_wrong(__func__));
    return 0;
}

int miopenScaleTensor(void *handle, const struct tensor *t, void *memory, const void *factor) {
    MAY_FAIL;
    if (handle != &a_handle) return 3;
    change(t, memory, load(factor, 0, t->type), 0);
    spoil(t, memory, told_wrong(__func__));
    return 0;
}

static void add_bias(const struct tensor *bd, const void *b, const struct tensor *yd, void *y) {
    int index[5] = {0};
    do {
        size_t at = at_index(yd, index);
        store(y, at, yd->type, load(y, at, yd->type) + load(b, at_index(bd, index), bd->type));
    } while (next(index, yd->lengths, yd->rank));
}

int miopenConvolutionForwardBias(void *handle, const float *alpha, const struct tensor *bd, const void *b,
                                 const float *beta, const struct tensor *yd, void *y) {
    MAY_FAIL;
    if (handle != &a_handle || *alpha != 1 || *beta != 0) return 3;
    add_bias(bd, b, yd, y);
    spoil(yd, y, told_wrong(__func__));
    return 0;
}

int miopenConvolutionBackwardBias(void *handle, const float *alpha, const struct tensor *yd, const void *dy,
                                  const float *beta, const struct tensor *bd, void *db) {
    double sums[64] = {0};
    int index[5] = {0};
    MAY_FAIL;
    if (handle != &a_handle || *alpha != 1 || *beta != 0 || bd->lengths[1] > 64) return 3;
    do sums[index[1]] += load(dy, at_index(yd, index), yd->type);
    while (next(index, yd->lengths, yd->rank));
    for (int channel = 0; channel < bd->lengths[1]; channel++) store(db, channel, bd->type, sums[channel]);
    spoil(bd, db, told_wrong(__func__));
    return 0;
}

enum operator { CONVOLUTION = 1, BIAS, RELU, BATCH_NORM };
struct fused { enum operator kind; const struct convolution *convolution; const struct tensor *tensor; };
struct plan { const struct tensor *input; int count; bool compiled; struct fused operators[4]; };
struct arguments { const void *weight, *bias, *scale, *mean, *variance; double epsilon; };

int miopenCreateFusionPlan(struct plan **plan, int direction, const struct tensor *input) {
    MAY_FAIL;
    if (direction) return 3;
    *plan = calloc(1, sizeof(struct plan));
    (*plan)->input = input;
    return 0;
}

int miopenDestroyFusionPlan(struct plan *plan) { MAY_FAIL; free(plan); return 0; }
int miopenCreateOperatorArgs(struct arguments **arguments) { MAY_FAIL; *arguments = calloc(1, sizeof **arguments); return 0; }
int miopenDestroyOperatorArgs(struct arguments *arguments) { MAY_FAIL; free(arguments); return 0; }

static int appended(struct plan *plan, struct fused **made, enum operator kind, const struct convolution *conv,
                    const struct tensor *tensor) {
    if (plan->count == 4) return 8;
    *made = &plan->operators[plan->count++];
    **made = (struct fused){kind, conv, tensor};
    return 0;
}

int miopenCreateOpConvForward(struct plan *plan, struct fused **made, const struct convolution *conv,
                              const struct tensor *weight) {
    MAY_FAIL;
    return appended(plan, made, CONVOLUTION, conv, weight);
}

int miopenCreateOpBiasForward(struct plan *plan, struct fused **made, const struct tensor *bias) {
    MAY_FAIL;
    return appended(plan, made, BIAS, NULL, bias);
}

int miopenCreateOpActivationForward(struct plan *plan, struct fused **made, int mode) {
    MAY_FAIL;
    return mode == 3 ? appended(plan, made, RELU, NULL, NULL) : 6;
}

int miopenCreateOpBatchNormInference(struct plan *plan, struct fused **made, int mode, const struct tensor *derived) {
    MAY_FAIL;
    return mode == 1 ? appended(plan, made, BATCH_NORM, NULL, derived) : 6;
}

int miopenCompileFusionPlan(void *handle, struct plan *plan) {
    const struct fused *all = plan->operators;
    bool convolution = plan->count == 3 && all[0].kind == CONVOLUTION && all[1].kind == BIAS && all[2].kind == RELU;
    bool normed = plan->count == 2 && all[0].kind == BATCH_NORM && all[1].kind == RELU;
    MAY_FAIL;
    if (handle != &a_handle) return 3;
    plan->compiled = normed || (convolution && plan->input->type == FLOAT);
    return plan->compiled ? 0 : 8;
}

int miopenSetOpArgsConvForward(struct arguments *arguments, const struct fused *f, const float *alpha, const float *beta,
                               const void *weight) {
    MAY_FAIL;
    if (f->kind != CONVOLUTION || *alpha != 1 || *beta != 0) return 3;
    arguments->weight = weight;
    return 0;
}

int miopenSetOpArgsBiasForward(struct arguments *arguments, const struct fused *f, const float *alpha, const float *beta,
                               const void *bias) {
    MAY_FAIL;
    if (f->kind != BIAS || *alpha != 1 || *beta != 0) return 3;
    arguments->bias = bias;
    return 0;
}

int miopenSetOpArgsActivForward(struct arguments *arguments, const struct fused *f, const float *alpha, const float *beta,
                                double a, double b, double c) {
    MAY_FAIL;
    (void)arguments;
    return f->kind != RELU || *alpha != 1 || *beta != 0 || a || b || c ? 3 : 0;
}

int miopenSetOpArgsBatchNormInference(struct arguments *arguments, const struct fused *f, const float *alpha,
                                      const float *beta, const void *scale, const void *bias, const void *mean,
                                      const void *variance, double epsilon) {
    MAY_FAIL;
    if (f->kind != BATCH_NORM || *alpha != 1 || *beta != 0) return 3;
    arguments->scale = scale, arguments->bias = bias, arguments->mean = mean, arguments->variance = variance;
    arguments->epsilon = epsilon;
    return 0;
}

int miopenExecuteFusionPlan(void *handle, struct plan *plan, const struct tensor *xd, const void *x,
                            const struct tensor *yd, void *y, const struct arguments *arguments) {
    const struct fused *first = &plan->operators[0];
    int index[5] = {0}, status = 0;
    MAY_FAIL;
    if (handle != &a_handle || !plan->compiled || xd != plan->input || !arguments->bias) return 3;
    if (first->kind == CONVOLUTION) {
        struct operands in = operands(1, xd, (void *)x, 2, first->tensor, (void *)arguments->weight, 3, yd, y);
        status = convolve(0, first->convolution, in.tensors, in.buffers, 0);
        add_bias(plan->operators[1].tensor, arguments->bias, yd, y);
    } else {
        const float one = 1, zero = 0;
        status = miopenBatchNormalizationForwardInference(
            handle, 1, &one, &zero, xd, x, yd, y, first->tensor, arguments->scale, arguments->bias, arguments->mean,
            arguments->variance, arguments->epsilon);
    }
    do {
        size_t at = at_index(yd, index);
        double value = load(y, at, yd->type);
        store(y, at, yd->type, value > 0 ? value : 0);
    } while (next(index, yd->lengths, yd->rank));
    spoil(yd, y, told_wrong(__func__));
    return status;
}
