/* A fake libcuda.so.1 for the tests of libgpubuf. It counts the objects that are held and fails the call that the test
 * names. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DEVICES 2

static int held;    /* contexts, allocations, ranges, mappings, pools, pointers, events */
static int pushed;  /* contexts that are current */
static int fail_at; /* the call that fails; 0: none */
static int calls;
static int imported;       /* pools, since the start */
static int opened;         /* access that was given to other devices */
static int recorded;       /* events */
static const char *memory; /* what a mapping's memory has, from FIRST on */
static size_t memory_bytes;

#define FIRST (UINT64_C(0x700000000000) + 512)

/* For the test. */
void fake_fail(int at);
int fake_held(void);
int fake_calls(void);
int fake_imported(void);
int fake_opened(void);
int fake_recorded(void);
void fake_memory(const void *bytes, size_t n);

void fake_memory(const void *bytes, size_t n) {
    memory = bytes;
    memory_bytes = n;
}

int fake_imported(void) {
    return imported;
}

int fake_opened(void) {
    return opened;
}

int fake_recorded(void) {
    return recorded;
}

void fake_fail(int at) {
    fail_at = at;
    calls = 0;
}

int fake_held(void) {
    return held + 1000 * pushed;
}

int fake_calls(void) {
    return calls;
}

#define CALL(name, ...)                                                                                                \
    int name(__VA_ARGS__);                                                                                             \
    int name(__VA_ARGS__)
#define MAY_FAIL                                                                                                       \
    if (++calls == fail_at)                                                                                            \
    return 2

struct handle {
    unsigned char bytes[64];
};

CALL(cuInit, unsigned flags) {
    MAY_FAIL;
    return (int)flags;
}

CALL(cuGetErrorName, int code, const char **ret) {
    *ret = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return 0;
}

CALL(cuDeviceGetCount, int *ret) {
    MAY_FAIL;
    *ret = DEVICES;
    return 0;
}

CALL(cuDeviceGetUuid_v2, unsigned char *ret, int device) {
    MAY_FAIL;
    memset(ret, device + 1, 16);
    return 0;
}

CALL(cuDevicePrimaryCtxRetain, void **ret, int device) {
    MAY_FAIL;
    *ret = (void *)(intptr_t)(device + 1);
    held++;
    return 0;
}

CALL(cuDevicePrimaryCtxRelease_v2, int device) {
    held--;
    return device < 0;
}

CALL(cuCtxPushCurrent_v2, void *context) {
    MAY_FAIL;
    pushed++;
    return context == NULL;
}

CALL(cuCtxPopCurrent_v2, void **ret) {
    *ret = NULL;
    pushed--;
    return 0;
}

CALL(cuMemImportFromShareableHandle, uint64_t *ret, void *handle, int type) {
    MAY_FAIL;
    *ret = 0x11;
    held++;
    return (intptr_t)handle < 0 || type != 1 || pushed != 1;
}

CALL(cuMemAddressReserve, uint64_t *ret, size_t bytes, size_t alignment, uint64_t wish, unsigned long long flags) {
    MAY_FAIL;
    *ret = 0x700000000000;
    held++;
    return bytes == 0 || alignment != 0 || wish != 0 || flags != 0;
}

CALL(cuMemMap, uint64_t at, size_t bytes, size_t offset, uint64_t allocation, unsigned long long flags) {
    MAY_FAIL;
    held++;
    return at != 0x700000000000 || bytes == 0 || offset != 0 || allocation != 0x11 || flags != 0;
}

CALL(cuMemSetAccess, uint64_t at, size_t bytes, const int *access, size_t count) {
    MAY_FAIL;
    opened += access[1] == 0;
    return at == 0 || bytes == 0 || access[0] != 1 || access[1] > 1 || access[2] != 1 || count != 1;
}

CALL(cuMemUnmap, uint64_t at, size_t bytes) {
    held--;
    return at == 0 || bytes == 0;
}

CALL(cuMemAddressFree, uint64_t at, size_t bytes) {
    held--;
    return at == 0 || bytes == 0;
}

CALL(cuMemRelease, uint64_t allocation) {
    held--;
    return allocation != 0x11;
}

CALL(cuMemPoolImportFromShareableHandle, void **ret, void *handle, int type, unsigned long long flags) {
    MAY_FAIL;
    *ret = &held;
    held++;
    imported++;
    return (intptr_t)handle < 0 || type != 1 || flags != 0;
}

CALL(cuMemPoolSetAccess, void *pool, const int *access, size_t count) {
    MAY_FAIL;
    opened++;
    return pool != &held || access[0] != 1 || access[1] != 0 || access[2] != 3 || count != 1;
}

CALL(cuMemPoolImportPointer, uint64_t *ret, void *pool, const struct handle *data) {
    MAY_FAIL;
    *ret = 0x700000000000;
    held++;
    return pool != &held || data->bytes[0] != 0x61;
}

CALL(cuMemPoolDestroy, void *pool) {
    held--;
    return pool != &held;
}

CALL(cuMemFree_v2, uint64_t at) {
    held--;
    return at != 0x700000000000;
}

CALL(cuIpcOpenMemHandle_v2, uint64_t *ret, struct handle handle, unsigned flags) {
    MAY_FAIL;
    *ret = 0x700000000000;
    held++;
    return handle.bytes[63] != 0x61 || flags != 1;
}

CALL(cuIpcCloseMemHandle, uint64_t at) {
    held--;
    return at != 0x700000000000;
}

CALL(cuIpcOpenEventHandle, void **ret, struct handle handle) {
    MAY_FAIL;
    *ret = &held;
    held++;
    return handle.bytes[0] != 0x61;
}

CALL(cuEventRecord, void *event, void *stream) {
    MAY_FAIL;
    recorded++;
    return event != &held || stream != NULL;
}

CALL(cuEventSynchronize, void *event) {
    recorded--;
    return event != &held;
}

CALL(cuMemcpyDtoH_v2, void *room, uint64_t at, size_t bytes) {
    MAY_FAIL;
    if (pushed != 1 || at < FIRST || at - FIRST > memory_bytes || bytes > memory_bytes - (at - FIRST))
        return 1;
    memcpy(room, memory + (at - FIRST), bytes);
    return 0;
}

CALL(cuEventDestroy_v2, void *event) {
    held--;
    return event != &held;
}

CALL(cuStreamWaitEvent, void *stream, void *event, unsigned flags) {
    MAY_FAIL;
    return stream != NULL || event != &held || flags != 0;
}
