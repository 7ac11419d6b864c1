/* Stands in for librocblas. */

#include "common.h"

static int a_handle;

int rocblas_create_handle(void **handle) { MAY_FAIL; *handle = &a_handle; return 0; }

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
