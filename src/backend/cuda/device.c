/* CUDA's driver and devices: capabilities and kinds of memory, the driver's functions, errors, and the processes that
 * open untrusted handles. Nothing links libcuda; its functions are found by name. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/common.h"
#include "backend/cuda/internal.h"
#include "base/clock.h"
#include "base/encoding.h"

/* --- devices ------------------------------------------------------------------------------------------------------ */

static void uuid_text(const cudaUUID_t *uuid, char ret[GB_UUID_TEXT_SIZE]) {
    gb_uuid_text(uuid->bytes, stpcpy(ret, "GPU-"));
}

/* CUDA's name of a part of a GPU has the part's profile: "NVIDIA H100 80GB HBM3 MIG 1g.10gb". */
static bool is_mig(const char *name) {
    return strstr(name, " MIG ") != NULL;
}

/* Names a MIG device as NVML and CUDA_VISIBLE_DEVICES do. Older functions give the UUID of its GPU. */
static void describe_mig(struct cuda_backend *be, const struct cudaDeviceProp *prop, struct gb_device_rec *ret) {
    cudaUUID_t uuid = prop->uuid;
    CUdevice handle = 0;
    CUuuid own;

    if (be->driver.device_uuid && be->driver.device_get(&handle, ret->index) == CUDA_SUCCESS &&
        be->driver.device_uuid(&own, handle) == CUDA_SUCCESS)
        memcpy(uuid.bytes, own.bytes, sizeof(uuid.bytes));
    gb_uuid_text(uuid.bytes, stpcpy(ret->uuid, "MIG-"));
}

static void lacks(struct gb_device_rec *rec, bool present, enum gb_capability capability, const char *why) {
    if (!present)
        snprintf(rec->cap_missing[capability], sizeof(rec->cap_missing[capability]), "%s", why);
}

/* A kind is missing for the reason of the capability that it needs. */
static void kind_needs(struct gb_device_rec *rec, enum gb_kind kind, enum gb_capability capability) {
    memcpy(rec->kind_missing[kind], rec->cap_missing[capability], sizeof(rec->kind_missing[kind]));
}

static bool exports_virtual_memory(struct cuda_backend *be, int device) {
    return be->driver.has_virtual_memory &&
           gb_cuda_device_attribute(be, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
           gb_cuda_device_attribute(be, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

static bool reaches_any_peer(struct cuda_backend *be, int device) {
    int can = 0;
    int peer;

    for (peer = 0; peer < be->device_count && !can; peer++) {
        if (peer != device && cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess)
            (void)cudaGetLastError();
    }
    return can != 0;
}

static void describe_capabilities(struct cuda_backend *be, const struct cudaDeviceProp *prop,
                                  struct gb_device_rec *ret) {
    bool exports_pool = (prop->memoryPoolSupportedHandleTypes & cudaMemHandleTypePosixFileDescriptor) != 0;

    lacks(ret, prop->memoryPoolsSupported, GB_CAP_MEMORY_POOLS, "the device has no memory pools");
    lacks(ret, exports_pool, GB_CAP_POOL_EXPORT_FD, "the device cannot share pools by file descriptor");
    lacks(ret, exports_virtual_memory(be, ret->index), GB_CAP_VMM_EXPORT_FD,
          "the device or driver cannot share virtual memory by file descriptor");
    lacks(ret, prop->managedMemory, GB_CAP_MANAGED_MEMORY, "the device has no managed memory");
    lacks(ret, prop->concurrentManagedAccess, GB_CAP_CONCURRENT_MANAGED_ACCESS,
          "CPU and GPU take turns with managed memory on this device");
    lacks(ret, prop->canMapHostMemory, GB_CAP_MAPPED_PINNED_MEMORY, "the device cannot map host memory");
    lacks(ret, prop->pageableMemoryAccess, GB_CAP_PAGEABLE_MEMORY_ACCESS,
          "the device cannot read memory that CUDA does not know");
    lacks(ret, prop->unifiedAddressing, GB_CAP_UNIFIED_ADDRESSING,
          "the device's addresses are not those of the process");
    /* CUDA grants the CPU no access to pool memory, even of an integrated device. */
    lacks(ret, false, GB_CAP_CPU_ACCESS, "CUDA gives the CPU no access to the memory of pools");
    lacks(ret, reaches_any_peer(be, ret->index), GB_CAP_PEER_ACCESS,
          is_mig(ret->name)      ? "a MIG device reaches the memory of no other device"
          : be->device_count < 2 ? "there is no other device"
                                 : "CUDA finds no way from this device to another's memory");
    lacks(ret, prop->ipcEventSupported && !prop->integrated, GB_CAP_LEGACY_IPC,
          "the device has no CUDA IPC of the older kind");
}

void gb_cuda_describe(const struct cudaDeviceProp *prop, int device, struct gb_device_rec *ret) {
    uint64_t machine_bytes;

    memset(ret, 0, sizeof(*ret));
    ret->index = device;
    uuid_text(&prop->uuid, ret->uuid);
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)sizeof(ret->name) - 1, prop->name);
    ret->total_bytes = prop->totalGlobalMem;
    ret->integrated = prop->integrated != 0;
    machine_bytes = ret->integrated ? gb_memory_there("") : 0;
    if (machine_bytes > 0 &&
        machine_bytes < ret->total_bytes) /* a control group bounds what the CPU and the GPU share */
        ret->total_bytes = machine_bytes;
    ret->cpu_access = false;
    ret->compute_major = prop->major;
    ret->compute_minor = prop->minor;
}

int gb_cuda_free_bytes(struct cuda_backend *be, int device, uint64_t *ret, struct gb_error *err) {
    const struct gb_device_rec *rec = &be->devices[device].rec;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    uint64_t left = rec->integrated ? gb_memory_left("") : UINT64_MAX;
    cudaError_t rc;

    if (left < UINT64_MAX) {
        *ret = left < rec->total_bytes ? left : rec->total_bytes;
        return 0;
    }
    rc = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaMemGetInfo", err);
    *ret = free_bytes;
    return 0;
}

static void version_text(int version, char ret[GB_RELEASE_SIZE]) {
    snprintf(ret, GB_RELEASE_SIZE, "%d.%d", version / 1000, version % 1000 / 10);
}

void gb_cuda_describe_releases(struct cuda_backend *be) {
    char release[GB_RELEASE_SIZE];
    int runtime = 0;
    int driver = 0;
    int i;

    gb_driver_release("", release);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        (void)cudaGetLastError();
    for (i = 0; i < be->device_count; i++) {
        struct gb_device_rec *rec = &be->devices[i].rec;

        memcpy(rec->driver, release, sizeof(rec->driver));
        version_text(driver, rec->cuda_driver);
        version_text(runtime, rec->cuda_runtime);
    }
}

int gb_cuda_describe_reach(struct cuda_backend *be, int device, struct gb_error *err) {
    struct gb_device_rec *ret = &be->devices[device].rec;
    struct cudaDeviceProp prop;
    cudaError_t rc;

    memset(&prop, 0, sizeof(prop));
    rc = cudaGetDeviceProperties(&prop, device);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaGetDeviceProperties", err);
    if (is_mig(ret->name))
        describe_mig(be, &prop, ret);
    describe_capabilities(be, &prop, ret);
    kind_needs(ret, GB_KIND_DEVICE, GB_CAP_MEMORY_POOLS);
    kind_needs(ret, GB_KIND_SHARED, GB_CAP_VMM_EXPORT_FD);
    kind_needs(ret, GB_KIND_MANAGED, GB_CAP_MANAGED_MEMORY);
    kind_needs(ret, GB_KIND_PINNED, GB_CAP_MAPPED_PINNED_MEMORY);
    /* Without pools this kind is the device's only memory of its own, even if it has no handles. */
    if (be->devices[device].has_pools)
        kind_needs(ret, GB_KIND_IPC, GB_CAP_LEGACY_IPC);
    ret->kind_cpu[GB_KIND_PINNED] = true;
    ret->kind_cpu[GB_KIND_PAGEABLE] = true;
    /* Otherwise the CPU could, but every page would have to come over the bus; a copy is faster. */
    ret->kind_cpu[GB_KIND_MANAGED] = ret->integrated;
    ret->managed_attach = prop.managedMemory && !prop.concurrentManagedAccess;
    return 0;
}

/* --- driver ------------------------------------------------------------------------------------------------------- */

/* Functions that the runtime does not have are found by name at run time. The driver's results and the runtime's errors
 * share their numbers since CUDA 10.1. */

/* The oldest CUDA whose functions have the types that struct cuda_driver gives them, and the search by version. */
#define DRIVER_VERSION 12000

struct entry {
    const char *symbol;
    void *at; /* a function pointer */
};

static bool find(const struct entry *entry, cudaError_t *ret_rc) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *fn = NULL;

    *ret_rc = cudaGetDriverEntryPointByVersion(entry->symbol, &fn, DRIVER_VERSION, cudaEnableLegacyStream, &found);
    if (*ret_rc != cudaSuccess || !fn || found != cudaDriverEntryPointSuccess)
        return false;
    memcpy(entry->at, &fn, sizeof(fn));
    return true;
}

int gb_cuda_driver_init(struct cuda_backend *be, struct gb_error *err) {
    struct cuda_driver *d = &be->driver;
    const struct entry needed[] = {
        {"cuMemsetD16Async", &d->fill16},
        {"cuMemsetD32Async", &d->fill32},
        {"cuMemsetD2D32Async", &d->fill_rows32},
        {"cuPointerGetAttribute", &d->pointer_attribute},
        {"cuDeviceGet", &d->device_get},
        {"cuDeviceGetAttribute", &d->device_attribute},
        {"cuMemGetAddressRange", &d->address_range},
    };
    const struct entry virtual_memory[] = {
        {"cuMemGetAllocationGranularity", &d->mem_granularity},
        {"cuMemCreate", &d->mem_create},
        {"cuMemRelease", &d->mem_release},
        {"cuMemAddressReserve", &d->mem_reserve},
        {"cuMemAddressFree", &d->mem_unreserve},
        {"cuMemMap", &d->mem_map},
        {"cuMemUnmap", &d->mem_unmap},
        {"cuMemSetAccess", &d->mem_set_access},
        {"cuMemRetainAllocationHandle", &d->mem_retain},
        {"cuMemExportToShareableHandle", &d->mem_export},
        {"cuMemImportFromShareableHandle", &d->mem_import},
        {"cuMemGetAllocationPropertiesFromHandle", &d->mem_properties},
    };
    cudaError_t rc = cudaSuccess;
    size_t i;

    for (i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (find(&needed[i], &rc))
            continue;
        if (rc != cudaSuccess)
            return gb_cuda_fail(be, rc, "cudaGetDriverEntryPointByVersion", err);
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the driver has no %s", needed[i].symbol);
    }
    if (!find(&(struct entry){"cuStreamWaitValue32", &d->stream_wait_value}, &rc))
        d->stream_wait_value = NULL;
    if (!find(&(struct entry){"cuDeviceGetUuid", &d->device_uuid}, &rc))
        d->device_uuid = NULL;
    d->has_virtual_memory = true;
    for (i = 0; i < sizeof(virtual_memory) / sizeof(virtual_memory[0]); i++) {
        if (!find(&virtual_memory[i], &rc))
            d->has_virtual_memory = false;
    }
    (void)cudaGetLastError();
    return 0;
}

int gb_cuda_device_attribute(struct cuda_backend *be, int device, CUdevice_attribute attribute) {
    CUdevice handle = 0;
    int value = 0;

    if (be->driver.device_get(&handle, device) != CUDA_SUCCESS ||
        be->driver.device_attribute(&value, attribute, handle) != CUDA_SUCCESS)
        return 0;
    return value;
}

/* --- errors, and a thread's device -------------------------------------------------------------------------------- */

/* The device of this thread's last cudaSetDevice, which saves the call on nearly every entry. The runtime keeps the
 * same state for each thread, and nothing else of the program sets it. */
static _Thread_local int current_device = -1;

static void mark_dead(struct cuda_backend *be, const struct gb_error *why) {
    pthread_mutex_lock(&be->dead_lock);
    if (!atomic_load(&be->dead)) {
        be->why = *why;
        atomic_store(&be->dead, true);
    }
    pthread_mutex_unlock(&be->dead_lock);
}

int gb_cuda_fail(struct cuda_backend *be, cudaError_t rc, const char *call, struct gb_error *err) {
    struct gb_error what = GB_ERROR_INIT;

    /* CUDA keeps the last error of a thread until it is read: clear it, so that no later call reports it. */
    (void)cudaGetLastError();
    gb_error_native_text(&what, "cuda", (int)rc, cudaGetErrorName(rc), call, cudaGetErrorString(rc));
    gb_error_set(&what, gb_native_code((int)rc), "%s failed: %s", call, cudaGetErrorString(rc));
    if (what.code == GB_ERR_DEVICE_LOST)
        mark_dead(be, &what);
    gb_error_native_text(err, what.native_domain, what.native_code, what.native_name, what.call, what.native_text);
    return gb_error_set(err, what.code, "%s", what.detail);
}

bool gb_cuda_dead(struct gb_backend *base, struct gb_error *ret_why) {
    struct cuda_backend *be = gb_cuda_of(base);

    if (!atomic_load(&be->dead))
        return false;
    if (ret_why)
        *ret_why = be->why;
    return true;
}

int gb_cuda_select(struct cuda_backend *be, int device, struct gb_error *err) {
    cudaError_t rc;

    if (device == current_device)
        return 0;
    if (device < 0 || device >= be->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "device %d is not one of the %d devices", device,
                            be->device_count);
    rc = cudaSetDevice(device);
    if (rc != cudaSuccess)
        return gb_cuda_fail(be, rc, "cudaSetDevice", err);
    current_device = device;
    return 0;
}

int gb_cuda_enter(struct cuda_backend *be, int device, struct gb_error *err) {
    if (atomic_load(&be->dead))
        return gb_error_move(err, &be->why);
    return gb_cuda_select(be, device, err);
}

/* --- probe -------------------------------------------------------------------------------------------------------- */

/* A process of its own tests whether the driver survives a pool's handle. Importers of an allocation die above a size
 * that only the handle knows, and a client may have written the handle itself. */

#define PROBE_S 20
#define POOL_FD 3
#define ANSWER_FD 4

struct probe_request {
    int device;
    unsigned char handle[GB_EXPORT_HANDLE_BYTES];
};

/* The probe's answer: CUDA's number, and the call that gave it. It is one write, which a pipe keeps together. */
struct probe_answer {
    int rc;
    char call[48];
};

struct probe_result {
    int error;  /* errno if no process could be started */
    bool heard; /* answer is set */
    int status; /* of the process's end */
    struct probe_answer answer;
};

/* --- the probe's process ------------------------------------------------------------------------------------------ */

static cudaError_t try_import(int device, struct cudaMemPoolPtrExportData *data, struct probe_answer *answer) {
    cudaMemPool_t pool;
    cudaError_t rc;
    void *at = NULL;

    snprintf(answer->call, sizeof(answer->call), "cudaSetDevice");
    rc = cudaSetDevice(device);
    if (rc != cudaSuccess)
        return rc;
    snprintf(answer->call, sizeof(answer->call), "cudaMemPoolImportFromShareableHandle");
    rc =
        cudaMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)POOL_FD, cudaMemHandleTypePosixFileDescriptor, 0);
    if (rc != cudaSuccess)
        return rc;
    snprintf(answer->call, sizeof(answer->call), "cudaMemPoolImportPointer");
    return cudaMemPoolImportPointer(&at, pool, data);
}

/* The end of the process releases the import. */
int gb_cuda_probe_main(int argc, char **argv) {
    const struct rlimit no_core = {0, 0};
    struct cudaMemPoolPtrExportData data;
    struct probe_answer answer = {0};
    unsigned char bytes[GB_EXPORT_HANDLE_BYTES];

    if (argc == 0 || strcmp(argv[0], GB_CUDA_PROBE) != 0)
        return -1;
    if (argc != 3 || !gb_hex_read(argv[2], bytes, sizeof(bytes)))
        return EXIT_FAILURE;
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(PROBE_S);
    memcpy(&data, bytes, sizeof(data));
    answer.rc = (int)try_import(atoi(argv[1]), &data, &answer);
    return write(ANSWER_FD, &answer, sizeof(answer)) == (ssize_t)sizeof(answer) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* --- the daemon's side -------------------------------------------------------------------------------------------- */

/* Starts the probe. The descriptors are first duplicated above those that the probe gets. Returns 0 or an errno
 * number. */
static int spawn(char *const argv[], int pool_fd, int answer_fd, pid_t *ret) {
    int high[2] = {fcntl(pool_fd, F_DUPFD_CLOEXEC, 16), fcntl(answer_fd, F_DUPFD_CLOEXEC, 16)};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    int r = errno;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawn_file_actions_adddup2(&actions, high[0], POOL_FD);
    posix_spawn_file_actions_adddup2(&actions, high[1], ANSWER_FD);
    if (high[0] >= 0 && high[1] >= 0)
        r = posix_spawn(ret, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (high[0] >= 0)
        close(high[0]);
    if (high[1] >= 0)
        close(high[1]);
    return r;
}

/* Reads the probe's answer and waits for its end. Returns true if it has answered. */
static bool read_answer(int fd, pid_t pid, struct probe_answer *ret, int *ret_status) {
    uint64_t end_ns = gb_clock_ns() + PROBE_S * GB_NS_PER_S;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t now_ns;
    bool heard = false;
    int n = 0;

    while (n == 0 && (now_ns = gb_clock_ns()) < end_ns) {
        n = poll(&p, 1, (int)((end_ns - now_ns) / GB_NS_PER_MS) + 1);
        n = n < 0 && errno == EINTR ? 0 : n;
    }
    if (n > 0)
        heard = read(fd, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret);
    if (!heard)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
        continue;
    ret->call[sizeof(ret->call) - 1] = '\0';
    return heard;
}

/* Starts the process that opens the pool, and waits for its end. */
static void probe_run(const struct probe_request *what, int pool_fd, struct probe_result *ret) {
    char name[] = GB_CUDA_PROBE;
    char device[16];
    char hex[GB_HEX_SIZE(GB_EXPORT_HANDLE_BYTES)];
    char *argv[] = {name, device, hex, NULL};
    int ends[2];
    pid_t pid = 0;

    *ret = (struct probe_result){.heard = false};
    snprintf(device, sizeof(device), "%d", what->device);
    gb_hex(what->handle, GB_EXPORT_HANDLE_BYTES, hex);
    if (pipe2(ends, O_CLOEXEC) < 0) {
        ret->error = errno;
        return;
    }
    ret->error = spawn(argv, pool_fd, ends[1], &pid);
    close(ends[1]);
    if (ret->error == 0)
        ret->heard = read_answer(ends[0], pid, &ret->answer, &ret->status);
    close(ends[0]);
}

/* --- prober ------------------------------------------------------------------------------------------------------- */

/* The process that starts probes. It takes requests only from the daemon's end of its socket, and only for probes. */

#define ASK_FD 3
#define FDS 2 /* of a request: the pool, and the socket for the answer */

/* The variable of the environment with the descriptor of the prober's socket. */
#define VARIABLE "GPUBUFD_PROBER_FD"

union control {
    struct cmsghdr head;
    char space[CMSG_SPACE(FDS * sizeof(int))];
};

static bool send_request(int fd, struct probe_request request, const int fds[FDS]) {
    struct iovec part = {&request, sizeof(request)};
    union control control = {.head = {CMSG_LEN(FDS * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};

    memcpy(CMSG_DATA(&control.head), fds, FDS * sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(request);
}

static bool receive_request(int fd, struct probe_request *ret, int ret_fds[FDS]) {
    struct iovec part = {ret, sizeof(*ret)};
    union control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.space)};
    ssize_t n;

    while ((n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        continue;
    if (n != (ssize_t)sizeof(*ret) || message.msg_controllen < CMSG_LEN(FDS * sizeof(int)))
        return false;
    memcpy(ret_fds, CMSG_DATA(&control.head), FDS * sizeof(int));
    return true;
}

/* A terminal and a service manager send signals to both processes. The prober ignores them, and ends after the
 * daemon. */
int gb_cuda_prober_main(int argc, char **argv) {
    struct probe_request request;
    struct probe_result result;
    int fds[FDS];

    if (argc == 0 || strcmp(argv[0], GB_CUDA_PROBER) != 0)
        return -1;
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)fcntl(ASK_FD, F_SETFD, FD_CLOEXEC);
    while (receive_request(ASK_FD, &request, fds)) {
        probe_run(&request, fds[0], &result);
        (void)send(fds[1], &result, sizeof(result), MSG_NOSIGNAL);
        close(fds[0]);
        close(fds[1]);
    }
    return EXIT_SUCCESS;
}

static int start(int socket) {
    char *argv[] = {(char[]){GB_CUDA_PROBER}, NULL};
    int high = fcntl(socket, F_DUPFD_CLOEXEC, ASK_FD + 1); /* a descriptor that is already ASK_FD would be closed */
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int r;

    if (high < 0)
        return errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, high, ASK_FD);
    r = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(high);
    return r;
}

int gb_cuda_prober_start(struct gb_error *err) {
    char text[16];
    int ends[2];
    int r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "socketpair", errno);
    r = start(ends[1]);
    close(ends[1]);
    snprintf(text, sizeof(text), "%d", ends[0]);
    if (r == 0 && setenv(VARIABLE, text, 1) < 0)
        r = errno;
    if (r == 0)
        return 0;
    close(ends[0]);
    return gb_error_errno(err, GB_ERR_INTERNAL, "posix_spawn", r);
}

/* Lets the prober start the probe. It carries out one request after the other. Returns false if gb_cuda_prober_start
 * was not called, so that this process starts the probe itself. [any thread] */
static bool prober_ask(const struct probe_request *what, int pool_fd, struct probe_result *ret) {
    const char *text = getenv(VARIABLE);
    ssize_t n = -1;
    int ends[2];

    if (!text)
        return false;
    *ret = (struct probe_result){.error = ECONNRESET};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        ret->error = errno;
        return true;
    }
    n = send_request(atoi(text), *what, (const int[]){pool_fd, ends[1]}) ? 0 : -1;
    close(ends[1]);
    if (n == 0)
        while ((n = recv(ends[0], ret, sizeof(*ret), 0)) < 0 && errno == EINTR)
            continue;
    close(ends[0]);
    if (n != (ssize_t)sizeof(*ret))
        ret->error = ECONNRESET;
    return true;
}

/* --- the daemon's question ---------------------------------------------------------------------------------------- */

int gb_cuda_probe(const struct gb_import *what, struct gb_error *err) {
    struct probe_request request = {.device = what->device};
    struct probe_result result;
    const struct probe_answer *answer = &result.answer;
    int status;

    memcpy(request.handle, what->handle, sizeof(request.handle));
    if (!prober_ask(&request, what->fd, &result))
        probe_run(&request, what->fd, &result);
    if (result.error != 0)
        return gb_error_errno(err, GB_ERR_SATURATED, "the start of a process that opens the pool", result.error);
    status = result.status;
    if (!result.heard)
        return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                            "a process that opened the pool and its pointer %s: allocations of a pool are taken up to "
                            "%llu bytes, as cudaMemPoolExportToShareableHandle and cudaMemPoolExportPointer gave them",
                            WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL ? "died of it" : "did not come back",
                            GB_EXPORT_POOL_MAX_BYTES);
    if (answer->rc == cudaSuccess)
        return 0;
    gb_error_native(err, "cuda", answer->rc, cudaGetErrorName((cudaError_t)answer->rc), answer->call);
    return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                        "CUDA does not take it for a pool and a pointer into it (%s: %s): give what "
                        "cudaMemPoolExportToShareableHandle and cudaMemPoolExportPointer gave, in another process and "
                        "while the memory lives",
                        answer->call, cudaGetErrorString((cudaError_t)answer->rc));
}
