/* Stands in for libcuda on a machine without one: it answers like a device of compute capability 9.0 and remembers what
   it was told, so that a test can see what really crosses the border. */
#include <stddef.h>
#include <string.h>

typedef struct {
    unsigned groups[3], size[3], shared;
    void *function, *stream, *extra;
    void* pointer;
    long long integer;
    float real;
    unsigned char flag;
    int launches, allowed, pushes, pops, resets, modules, fail_next;
} Seen;

Seen seen;
static void* current;

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return index ? 101 : 0; }
int cuDeviceGetName(char* name, int size, int device) { strncpy(name, "Stand-in", (size_t)size); return device; }
int cuDeviceGetAttribute(int* value, int which, int device) {
    *value = which == 75 ? 9 : which == 76 ? 0 : which == 97 ? 232448 : which == 39 ? 2048 : which == 16 ? 132 : -1;
    return device;
}
int cuDevicePrimaryCtxRetain(void** context, int device) { *context = (void*)0x1234567890; return device; }
int cuCtxGetCurrent(void** context) { *context = current; return 0; }
int cuCtxPushCurrent_v2(void* context) { current = context; seen.pushes++; return 0; }
int cuCtxPopCurrent_v2(void** context) { *context = current; current = NULL; seen.pops++; return 0; }
int cuModuleLoadData(void** module, const char* image) {
    seen.modules++;
    *module = (void*)0xabcdef0123;
    return strcmp(image, "image");
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = (void*)0xfeedfacecafe;
    return module != (void*)0xabcdef0123 || strcmp(name, "symbol");
}
int cuFuncGetAttribute(int* value, int which, void* function) { *value = which ? -1 : 512; return function == NULL; }
int cuFuncSetAttribute(void* function, int which, int value) { seen.allowed = value; return which != 8 || !function; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* groups, void* function, int threads, size_t shared) {
    *groups = function && threads == 128 && shared == 60000 ? 3 : -1;
    return 0;
}
int cuCtxResetPersistingL2Cache(void) { seen.resets++; return 0; }
int cuGetErrorName(int status, const char** name) { *name = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL; return 0; }
int cuGetErrorString(int status, const char** words) { *words = status == 700 ? "an illegal access" : NULL; return 0; }
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned sx, unsigned sy, unsigned sz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
    int status = seen.fail_next;
    seen.fail_next = 0;
    seen.launches++;
    seen.groups[0] = gx; seen.groups[1] = gy; seen.groups[2] = gz;
    seen.size[0] = sx; seen.size[1] = sy; seen.size[2] = sz;
    seen.shared = shared; seen.function = function; seen.stream = stream; seen.extra = extra;
    seen.pointer = *(void**)parameters[0];
    seen.integer = *(long long*)parameters[1];
    seen.real = *(float*)parameters[2];
    seen.flag = *(unsigned char*)parameters[3];
    return status;
}
