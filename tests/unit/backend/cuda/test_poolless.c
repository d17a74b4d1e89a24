/* A GPU without memory pools, and an integrated one, by fake answers of CUDA: the linker puts the functions here in the
 * place of those that the backend calls (--wrap). Without a GPU all of CUDA's answers are fake, and only opening is
 * tested; with one they are the real ones, but for what the device says of its pools. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/common.h"
#include "base/process.h"
#include "gb_test.h"

#define BYTES ((1u << 20) + 3)

/* The macro of a newer version of a function is followed by its name. */
#define JOIN(a, b) a##b
#define WRAPPED(name) JOIN(__wrap_, name)
#define REAL(name) JOIN(__real_, name)

static bool fake;       /* there is no GPU */
static int poolless;    /* the device that says so */
static bool integrated; /* it is one */
static bool mig;        /* device 0 is a part of a GPU, and the only one */
static unsigned made;   /* a bit for each device whose primary context was made; only if there is no GPU */

/* --- CUDA --------------------------------------------------------------------------------------------------------- */

#define WRAP(name, parameters, arguments, answer)                                                                      \
    cudaError_t REAL(name) parameters;                                                                                 \
    cudaError_t WRAPPED(name) parameters;                                                                              \
    cudaError_t WRAPPED(name) parameters {                                                                             \
        if (!fake)                                                                                                     \
            return REAL(name) arguments;                                                                               \
        answer;                                                                                                        \
        return cudaSuccess;                                                                                            \
    }

/* It refuses everything. */
static int driver_function(void) {
    return cudaErrorNotSupported;
}

static void *function_pointer(void) {
    int (*fn)(void) = driver_function;
    void *ret;

    memcpy(&ret, &fn, sizeof(ret));
    return ret;
}

WRAP(cudaGetDeviceCount, (int *count), (count), *count = mig ? 1 : 2)
WRAP(cudaSetDevice, (int device), (device), (void)device)
WRAP(cudaInitDevice, (int device, unsigned flags, unsigned which), (device, flags, which), made |= 1u << device)
WRAP(cudaDriverGetVersion, (int *version), (version), *version = 12020)
WRAP(cudaMemGetInfo, (size_t * left, size_t *total), (left, total), *left = *total = 1 << 30)
WRAP(cudaDeviceCanAccessPeer, (int *can, int device, int peer), (can, device, peer), *can = 0)
WRAP(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), (least, greatest), *least = *greatest = 0)
WRAP(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority), (stream, flags, priority),
     *stream = (cudaStream_t)&fake)
WRAP(cudaStreamDestroy, (cudaStream_t stream), (stream), (void)stream)
WRAP(cudaGetDriverEntryPointByVersion,
     (const char *name, void **ret, unsigned version, unsigned long long flags,
      enum cudaDriverEntryPointQueryResult *found),
     (name, ret, version, flags, found), (*ret = function_pointer(), *found = cudaDriverEntryPointSuccess))
WRAP(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value), (pool, attr, value),
     (void)value)
WRAP(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), (pool, keep), (void)keep)

cudaError_t REAL(cudaDeviceGetDefaultMemPool)(cudaMemPool_t *pool, int device);
cudaError_t WRAPPED(cudaDeviceGetDefaultMemPool)(cudaMemPool_t *pool, int device);
cudaError_t WRAPPED(cudaDeviceGetDefaultMemPool)(cudaMemPool_t *pool, int device) {
    ck_assert_int_ne(device, poolless); /* it is not asked for what it has not */
    if (!fake)
        return REAL(cudaDeviceGetDefaultMemPool)(pool, device);
    *pool = (cudaMemPool_t)&fake;
    return cudaSuccess;
}

cudaError_t REAL(cudaGetDeviceProperties)(struct cudaDeviceProp *prop, int device);
cudaError_t WRAPPED(cudaGetDeviceProperties)(struct cudaDeviceProp *prop, int device);
cudaError_t WRAPPED(cudaGetDeviceProperties)(struct cudaDeviceProp *prop, int device) {
    if (fake) {
        memset(prop, 0, sizeof(*prop));
        strcpy(prop->name, mig ? "NVIDIA H100 80GB HBM3 MIG 1g.10gb" : "fake");
        memset(prop->uuid.bytes, 7, sizeof(prop->uuid.bytes));
        prop->totalGlobalMem = 1 << 30;
        prop->memoryPoolsSupported = prop->managedMemory = prop->canMapHostMemory = prop->ipcEventSupported = 1;
    } else if (REAL(cudaGetDeviceProperties)(prop, device) != cudaSuccess) {
        return cudaErrorInvalidDevice;
    }
    if (device != poolless)
        return cudaSuccess;
    prop->memoryPoolsSupported = 0;
    prop->memoryPoolSupportedHandleTypes = 0;
    prop->integrated = integrated;
    return cudaSuccess;
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

static uint64_t machine_has = UINT64_MAX; /* UINT64_MAX: the real numbers */
static uint64_t machine_left;

uint64_t REAL(gb_memory_there)(const char *root);
uint64_t WRAPPED(gb_memory_there)(const char *root);
uint64_t WRAPPED(gb_memory_there)(const char *root) {
    return machine_has < UINT64_MAX ? machine_has : REAL(gb_memory_there)(root);
}

uint64_t REAL(gb_memory_left)(const char *root);
uint64_t WRAPPED(gb_memory_left)(const char *root);
uint64_t WRAPPED(gb_memory_left)(const char *root) {
    return machine_has < UINT64_MAX ? machine_left : REAL(gb_memory_left)(root);
}

static uint64_t budget = UINT64_MAX; /* UINT64_MAX: the real one */

uint64_t REAL(gb_memory_budget_left)(const struct gb_memory_budget *of, uint64_t given_bytes);
uint64_t WRAPPED(gb_memory_budget_left)(const struct gb_memory_budget *of, uint64_t given_bytes);
uint64_t WRAPPED(gb_memory_budget_left)(const struct gb_memory_budget *of, uint64_t given_bytes) {
    return budget < UINT64_MAX ? budget - given_bytes : REAL(gb_memory_budget_left)(of, given_bytes);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static struct gb_error err;
static char note[GB_BACKEND_NOTE_SIZE];

static struct gb_backend *open_cuda(int device, bool on_chip) {
    struct gb_backend *be = NULL;
    int count = 0;

    fake = false;
    fake = REAL(cudaGetDeviceCount)(&count) != cudaSuccess || count == 0;
    poolless = device;
    integrated = on_chip;
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_backend_open("cuda", &be, note, &err), err);
    return be;
}

static struct gb_device_rec look(struct gb_backend *be, int device) {
    struct gb_device_rec rec;

    gb_assert_ok(gb_backend_device_get(be, device, &rec, &err), err);
    return rec;
}

START_TEST(it_opens_and_says_why) {
    struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED};
    struct gb_backend *be = open_cuda(0, _i == 1);
    struct gb_device_rec rec = look(be, 0);
    struct gb_pool *pool;

    ck_assert_str_eq(rec.cap_missing[GB_CAP_MEMORY_POOLS], "the device has no memory pools");
    ck_assert_str_eq(rec.kind_missing[GB_KIND_DEVICE], "the device has no memory pools");
    ck_assert_str_eq(rec.kind_missing[GB_KIND_IPC], ""); /* of cudaMalloc, also where handles are not had */
    ck_assert_int_eq(rec.cap_missing[GB_CAP_LEGACY_IPC][0] != '\0', _i == 1);
    gb_assert_fails(gb_pool_default(be, 0, &pool, &err), err, GB_ERR_UNSUPPORTED);
    gb_pool_default(be, 0, &pool, &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "the device has no memory pools"));
    ck_assert_str_eq(err.native_name, "cudaErrorNotSupported");
    ck_assert_int_eq(err.native_code, 801);
    ck_assert_str_eq(err.native_domain, "cuda");
    ck_assert_str_eq(err.call, "cudaDeviceGetDefaultMemPool");
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_pool_create(be, 0, &config, &pool, &err), err, GB_ERR_UNSUPPORTED);
    gb_backend_close(be);
}
END_TEST

START_TEST(another_device_has_its_pools) {
    struct gb_backend *be = open_cuda(1, false);
    struct gb_device_rec rec = look(be, 0);
    struct gb_pool *pool;

    ck_assert_str_eq(rec.cap_missing[GB_CAP_MEMORY_POOLS], "");
    ck_assert_str_eq(rec.kind_missing[GB_KIND_DEVICE], "");
    gb_assert_ok(gb_pool_default(be, 0, &pool, &err), err);
    if (gb_backend_device_count(be) > 1) {
        rec = look(be, 1);
        ck_assert_str_ne(rec.kind_missing[GB_KIND_DEVICE], "");
    }
    gb_backend_close(be);
}
END_TEST

/* No request is the first call of CUDA: opening makes the primary context of every device. */
START_TEST(each_device_has_its_context) {
    struct gb_backend *be;

    made = 0;
    be = open_cuda(0, false);
    ck_assert_uint_eq(made, fake ? 3 : 0);
    gb_backend_close(be);
}
END_TEST

/* An integrated GPU has what the kernel has: CUDA takes files that are cached for used memory, and knows no control
 * group. */
START_TEST(an_integrated_gpu_has_what_the_kernel_has) {
    struct gb_backend *be;

    machine_has = 600 << 20;
    machine_left = 500 << 20;
    be = open_cuda(0, true);
    ck_assert_uint_eq(look(be, 0).total_bytes, 600 << 20);
    ck_assert_uint_eq(look(be, 0).free_bytes, 500 << 20);
    machine_left = 100 << 20;
    ck_assert_uint_eq(look(be, 0).free_bytes, 100 << 20);
    machine_left = UINT64_MAX; /* not known: CUDA's number */
    ck_assert_uint_gt(look(be, 0).free_bytes, 100 << 20);
    gb_backend_close(be);
    machine_left = 100 << 20;
    be = open_cuda(0, false); /* memory of its own */
    ck_assert_uint_gt(look(be, 0).total_bytes, 600 << 20);
    ck_assert_uint_gt(look(be, 0).free_bytes, 100 << 20);
    gb_backend_close(be);
}
END_TEST

/* The driver's function is fake and refuses, so the UUID is that of the properties. */
START_TEST(a_part_of_a_gpu_is_named_as_one) {
    struct gb_backend *be;
    struct gb_device_rec rec;

    mig = true;
    be = open_cuda(1, false);
    if (fake) {
        rec = look(be, 0);
        ck_assert_str_eq(rec.uuid, "MIG-07070707-0707-0707-0707-070707070707");
        ck_assert_str_eq(rec.name, "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
        ck_assert_uint_eq(rec.total_bytes, 1 << 30);
        ck_assert_str_eq(rec.cap_missing[GB_CAP_PEER_ACCESS], "a MIG device reaches the memory of no other device");
        gb_assert_fails(gb_backend_device_get(be, 1, &rec, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    }
    gb_backend_close(be);
    mig = false;
    be = open_cuda(1, false);
    ck_assert_int_eq(strncmp(look(be, 0).uuid, "GPU-", 4), 0);
    gb_backend_close(be);
}
END_TEST

START_TEST(host_memory_that_the_machine_lacks_is_refused) {
    struct gb_backend *be = open_cuda(0, false);
    struct gb_location place = {.kind = GB_KIND_PAGEABLE};
    void *none;

    budget = 3 * BYTES;
    gb_assert_ok(gb_mem_kind_alloc(be, 0, GB_KIND_PAGEABLE, 2 * BYTES, &place.ptr, &err), err);
    gb_assert_fails(gb_mem_kind_alloc(be, 0, GB_KIND_PAGEABLE, BYTES + 1, &none, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_assert_fails(gb_mem_kind_alloc(be, 0, GB_KIND_PINNED, BYTES + 1, &none, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_mem_kind_alloc(be, 0, GB_KIND_PINNED, BYTES + 1, &none, &err);
    ck_assert_str_eq(err.native_name, "cudaErrorMemoryAllocation");
    ck_assert(err.limit_bytes == 3 * BYTES && err.used_bytes == 2 * BYTES && err.requested_bytes == BYTES + 1);
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_mem_kind_free(be, &place, 2 * BYTES, &err), err);
    gb_assert_ok(gb_mem_kind_alloc(be, 0, GB_KIND_PAGEABLE, 3 * BYTES, &place.ptr, &err), err);
    gb_assert_ok(gb_mem_kind_free(be, &place, 3 * BYTES, &err), err);
    gb_backend_close(be);
}
END_TEST

/* --- with a GPU --------------------------------------------------------------------------------------------------- */

START_TEST(its_memory_holds_bytes) {
    struct gb_backend *be = open_cuda(0, _i == 1);
    struct gb_location place = {.kind = GB_KIND_IPC};
    struct gb_location host = {.kind = GB_KIND_PINNED};
    struct gb_stream *stream;
    struct gb_mem_attr attr;
    enum gb_copy_way way;
    unsigned char *bytes;
    unsigned i;

    if (fake) {
        gb_backend_close(be);
        return;
    }
    gb_assert_ok(gb_stream_create(be, 0, &stream, &err), err);
    gb_assert_ok(gb_mem_kind_alloc(be, 0, GB_KIND_IPC, BYTES, &place.ptr, &err), err);
    gb_assert_ok(gb_mem_kind_alloc(be, 0, GB_KIND_PINNED, BYTES, &host.ptr, &err), err);
    bytes = host.ptr;
    for (i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 7);
    gb_assert_ok(gb_mem_move(be, &place, &host, BYTES, stream, &way, &err), err);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    memset(bytes, 0, BYTES);
    gb_assert_ok(gb_mem_move(be, &host, &place, BYTES, stream, &way, &err), err);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    for (i = 0; i < BYTES; i++)
        ck_assert_uint_eq(bytes[i], (unsigned char)(i * 7));
    gb_assert_ok(gb_mem_attributes(be, &place, NULL, &attr, &err), err);
    ck_assert(attr.type == GB_MEMORY_DEVICE && !attr.from_pool);
    gb_assert_ok(gb_mem_kind_free(be, &place, BYTES, &err), err);
    gb_assert_ok(gb_mem_kind_free(be, &host, BYTES, &err), err);
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}
END_TEST

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* The host backend says what CUDA says. */
START_TEST(texts_are_those_of_cuda) {
    static const struct gb_native natives[] = {
#define GB_NATIVE(name, number, code, text) {#name, number, GB_ERR_##code, text},
#include "backend/native.def"
#undef GB_NATIVE
    };
    size_t i;

    for (i = 0; CUDART_VERSION >= 13000 && i < sizeof(natives) / sizeof(natives[0]); i++) {
        ck_assert_str_eq(natives[i].text, cudaGetErrorString((cudaError_t)natives[i].number));
        ck_assert_str_eq(natives[i].name, cudaGetErrorName((cudaError_t)natives[i].number));
    }
}
END_TEST

START_TEST(releases_are_told) {
    struct gb_backend *be = open_cuda(0, false);
    struct gb_device_rec rec = look(be, 0);

    ck_assert_str_ne(rec.cuda_driver, "0.0");
    ck_assert_str_ne(rec.cuda_runtime, "");
    if (fake)
        ck_assert_str_eq(rec.cuda_driver, "12.2");
    else
        ck_assert_str_ne(rec.driver, "");
    ck_assert_ptr_nonnull(strstr(note, rec.cuda_driver));
    gb_backend_close(be);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_poolless");

    gb_test_add_loop(suite, "open", it_opens_and_says_why, 60, 2);
    gb_test_add(suite, "beside", another_device_has_its_pools, 60);
    gb_test_add(suite, "contexts", each_device_has_its_context, 60);
    gb_test_add(suite, "integrated", an_integrated_gpu_has_what_the_kernel_has, 60);
    gb_test_add(suite, "mig", a_part_of_a_gpu_is_named_as_one, 60);
    gb_test_add(suite, "machine", host_memory_that_the_machine_lacks_is_refused, 60);
    gb_test_add_loop(suite, "bytes", its_memory_holds_bytes, 60, 2);
    gb_test_add(suite, "texts", texts_are_those_of_cuda, 60);
    gb_test_add(suite, "releases", releases_are_told, 60);
    return gb_test_run(suite);
}
