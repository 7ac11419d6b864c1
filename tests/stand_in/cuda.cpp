/* Stands in for libcuda and libnvrtc by the same means as modules.cpp, and with its variables; the one architecture is
 * sm_90, of the one capability that its devices have. */

#include "modules.cpp"

namespace {

enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, DEVICES = 8 };

thread_local std::vector<void *> contexts;
char primary[DEVICES];

}  // namespace

/* What modules.cpp notes as the device of a launch; -1 where no context is current. */
int hipGetDevice(int *device) {
    *device = contexts.empty() ? -1 : (int)((char *)contexts.back() - primary);
    return 0;
}

API cuInit(unsigned) { MAY_FAIL; return 0; }
API cuDriverGetVersion(int *version) { MAY_FAIL; *version = 12040; return 0; }
API cuDeviceGet(int *handle, int device) { MAY_FAIL; *handle = device; return device < 0 || device >= DEVICES ? 101 : 0; }

API cuDeviceGetAttribute(int *value, int attribute, int) {
    MAY_FAIL;
    *value = attribute == CAPABILITY_MAJOR ? 9 : 0;
    return attribute == CAPABILITY_MAJOR || attribute == CAPABILITY_MINOR ? 0 : 1;
}

API cuGetErrorName(int error, const char **name) {
    *name = error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : error == 500 ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_UNKNOWN";
    return 0;
}

API cuDevicePrimaryCtxRetain(void **context, int device) { MAY_FAIL; *context = &primary[device]; return 0; }

API cuCtxGetCurrent(void **context) {
    MAY_FAIL;
    *context = contexts.empty() ? NULL : contexts.back();
    return 0;
}

API cuCtxPushCurrent_v2(void *context) { MAY_FAIL; contexts.push_back(context); return 0; }

API cuCtxPopCurrent_v2(void **context) {
    MAY_FAIL;
    if (contexts.empty()) return 201;
    *context = contexts.back();
    contexts.pop_back();
    return 0;
}

API cuCtxSynchronize(void) { MAY_FAIL; return contexts.empty() ? 201 : 0; }
API cuMemAlloc_v2(void **address, size_t size) { MAY_FAIL; *address = malloc(size); return 0; }
API cuMemFree_v2(void *address) { MAY_FAIL; free(address); return 0; }
API cuMemsetD8_v2(void *address, unsigned char byte, size_t size) { MAY_FAIL; memset(address, byte, size); return 0; }
API cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { MAY_FAIL; memcpy(to, from, size); return 0; }
API cuMemcpyDtoH_v2(void *to, const void *from, size_t size) { MAY_FAIL; memcpy(to, from, size); return 0; }
API cuMemcpyDtoD_v2(void *to, const void *from, size_t size) { MAY_FAIL; memcpy(to, from, size); return 0; }

API cuModuleLoadData(void **module, const char *code) {
    MAY_FAIL;
    return contexts.empty() ? 201 : hipModuleLoadData(module, code);
}

API cuModuleUnload(void *module) { MAY_FAIL; return hipModuleUnload(module); }

API cuModuleGetFunction(void **function, void *module, const char *name) {
    MAY_FAIL;
    return hipModuleGetFunction(function, module, name);
}

API cuLaunchKernel(
    void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y, unsigned threads_z,
    unsigned shared, void *stream, void **parameters, void **extra) {
    MAY_FAIL;
    if (contexts.empty()) return 201;
    return hipModuleLaunchKernel(
        function, x, y, z, threads, threads_y, threads_z, shared, stream, parameters, extra);
}

API cuStreamSynchronize(void *stream) { MAY_FAIL; return hipStreamSynchronize(stream); }
API cuEventCreate(void **event, unsigned flags) { MAY_FAIL; return hipEventCreateWithFlags(event, flags); }
API cuEventDestroy_v2(void *event) { MAY_FAIL; return hipEventDestroy(event); }
API cuEventSynchronize(void *event) { MAY_FAIL; return hipEventSynchronize(event); }
API cuEventRecord(void *event, void *stream) { MAY_FAIL; return hipEventRecord(event, stream); }

API cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    MAY_FAIL;
    return hipEventElapsedTime(milliseconds, start, end);
}

extern "C" const char *nvrtcGetErrorString(int error) { return error == RTC_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR"; }
API nvrtcVersion(int *major, int *minor) { MAY_FAIL; *major = 12; *minor = 4; return 0; }

API nvrtcCreateProgram(void **program, const char *source, const char *name, int count, const char **headers, const char **names) {
    MAY_FAIL;
    return hiprtcCreateProgram(program, source, name, count, headers, names);
}

API nvrtcDestroyProgram(void **program) { MAY_FAIL; return hiprtcDestroyProgram(program); }

API nvrtcCompileProgram(void *program, int count, const char **options) {
    MAY_FAIL;
    return hiprtcCompileProgram(program, count, options);
}

API nvrtcGetProgramLogSize(void *program, size_t *size) { MAY_FAIL; return hiprtcGetProgramLogSize(program, size); }
API nvrtcGetProgramLog(void *program, char *log) { MAY_FAIL; return hiprtcGetProgramLog(program, log); }
API nvrtcGetCUBINSize(void *program, size_t *size) { MAY_FAIL; return hiprtcGetCodeSize(program, size); }
API nvrtcGetCUBIN(void *program, char *code) { MAY_FAIL; return hiprtcGetCode(program, code); }
