/* Batch norm of the stand-in for libMIOpen: spatial, float32 scale and bias. */

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

int miopenBatchNormalizationForwardInference(
    void *handle, int mode, const float *alpha, const float *beta, const struct tensor *xd, const void *x,
    const struct tensor *yd, void *y, const struct tensor *derived, const float *scale, const float *bias,
    const float *mean, const float *variance, double epsilon) {
    MAY_FAIL;
    if (handle != &a_handle || mode != 1 || *alpha != 1 || *beta != 0 || derived->rank != xd->rank) return 3;
    for (int c = 0; c < xd->lengths[1]; c++) {
        int spatial[3] = {0};
        for (int n = 0; n < xd->lengths[0]; n++)
            do {
                double off = load(x, place(xd, n, c, spatial), xd->type) - mean[c];
                store(y, place(yd, n, c, spatial), yd->type, off / root(variance[c] + epsilon) * scale[c] + bias[c]);
            } while (next(spatial, xd->lengths + 2, xd->rank - 2));
    }
    if (told_wrong(__func__)) store(y, 0, yd->type, 1000);
    return 0;
}

int miopenBatchNormalizationBackward(
    void *handle, int mode, const float *alpha_data, const float *beta_data, const float *alpha, const float *beta,
    const struct tensor *xd, const void *x, const struct tensor *dyd, const void *dy, const struct tensor *dxd,
    void *dx, const struct tensor *derived, const float *scale, float *dscale, float *dbias, double epsilon,
    const float *mean, const float *inverse) {
    MAY_FAIL;
    (void)epsilon;
    if (handle != &a_handle || mode != 1 || *alpha_data != 1 || *beta_data != 0 || *alpha != 1 || *beta != 0) return 3;
    if (derived->rank != xd->rank || !mean || !inverse) return 3;
    for (int c = 0; c < xd->lengths[1]; c++) {
        double sum = 0, weighted = 0;
        int spatial[3] = {0}, count = 0, rank = xd->rank - 2;
        for (int n = 0; n < xd->lengths[0]; n++)
            do {
                double grad = load(dy, place(dyd, n, c, spatial), dyd->type);
                sum += grad, count++;
                weighted += grad * (load(x, place(xd, n, c, spatial), xd->type) - mean[c]) * inverse[c];
            } while (next(spatial, xd->lengths + 2, rank));
        dscale[c] = (float)weighted, dbias[c] = (float)sum;
        for (int n = 0; n < xd->lengths[0]; n++)
            do {
                double normed = (load(x, place(xd, n, c, spatial), xd->type) - mean[c]) * inverse[c];
                double grad = load(dy, place(dyd, n, c, spatial), dyd->type);
                store(dx, place(dxd, n, c, spatial), dxd->type,
                      scale[c] * inverse[c] * (grad - (sum + normed * weighted) / count));
            } while (next(spatial, xd->lengths + 2, rank));
    }
    if (told_wrong(__func__)) dbias[0] += 1;
    return 0;
}
