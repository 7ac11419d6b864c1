/* Stands in for libamdhip64; -DOLD_PROPERTIES is the layout before ROCm 6. Kernels: modules.cpp.
 * LC_STAND_IN_ISA is what it calls its GPUs (gfx1030). */

#include "common.h"

static int devices(void) { const char *count = getenv("LC_STAND_IN_DEVICES"); return count ? atoi(count) : 1; }

const char *hipGetErrorName(int error) {
    switch (error) {
    case 0: return "hipSuccess";
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 98: return "hipErrorInvalidDeviceFunction";
    case 100: return "hipErrorNoDevice";
    case 101: return "hipErrorInvalidDevice";
    case 209: return "hipErrorNoBinaryForGpu";
    case 500: return "hipErrorNotFound";
    case 719: return "hipErrorLaunchFailure";
    default: return "hipErrorUnknown";
    }
}

int hipInit(unsigned flags) { MAY_FAIL; (void)flags; return devices() ? 0 : 100; }
int hipRuntimeGetVersion(int *version) { MAY_FAIL; *version = 60443484; return 0; }
int hipGetDeviceCount(int *count) { MAY_FAIL; *count = devices(); return *count ? 0 : 100; }

static _Thread_local int current;

int hipSetDevice(int device) {
    MAY_FAIL;
    if (device < 0 || device >= devices()) return 101;
    current = device;
    return 0;
}

int hipGetDevice(int *device) { MAY_FAIL; *device = current; return 0; }

int hipDeviceGetPCIBusId(char *address, int length, int device) {
    MAY_FAIL;
    if (device < 0 || device >= devices()) return 101;
    snprintf(address, length, "0000:%02x:00.0", 3 + device);
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
    const char *isa = getenv("LC_STAND_IN_ISA");
    strcpy(properties + 1160, isa ? isa : "gfx1030");
    return 0;
}
#endif

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
