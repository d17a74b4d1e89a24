/* Shared by the implementations of backend.h: CUDA's errors by number and name, gates that hold up a stream, and host
 * memory in files. No function takes a lock of a backend. */
#include "backend/common.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/thread.h"

/* --- native ------------------------------------------------------------------------------------------------------- */

static const struct gb_native natives[] = {
#define GB_NATIVE(name, number, code, text) {#name, number, GB_ERR_##code, text},
#include "backend/native.def"
#undef GB_NATIVE
};

#define NATIVE_COUNT (sizeof(natives) / sizeof(natives[0]))

const struct gb_native *gb_native_by_number(int number) {
    size_t i;

    for (i = 0; i < NATIVE_COUNT; i++) {
        if (natives[i].number == number)
            return &natives[i];
    }
    return NULL;
}

const struct gb_native *gb_native_by_name(const char *name, size_t len) {
    size_t i;

    for (i = 0; i < NATIVE_COUNT; i++) {
        if (strlen(natives[i].name) == len && memcmp(natives[i].name, name, len) == 0)
            return &natives[i];
    }
    return NULL;
}

enum gb_code gb_native_code(int number) {
    const struct gb_native *native = gb_native_by_number(number);

    return native ? native->code : GB_ERR_DEVICE_ERROR;
}

int gb_native_refuse(struct gb_error *err, const char *domain, int number, const char *call, const char *fmt, ...) {
    const struct gb_native *native = gb_native_by_number(number);
    char text[sizeof(err->detail)];
    va_list ap;

    if (!err || err->code != GB_OK)
        return -1;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    gb_error_native_text(err, domain, number, native->name, call, native->text);
    return gb_error_set(err, GB_ERR_UNSUPPORTED, "%s", text);
}

const char *gb_native_kind_call(enum gb_kind kind) {
    static const char *const calls[GB_KIND_COUNT] = {[GB_KIND_DEVICE] = "cudaMallocFromPoolAsync",
                                                     [GB_KIND_SHARED] = "cuMemCreate",
                                                     [GB_KIND_MANAGED] = "cudaMallocManaged",
                                                     [GB_KIND_PINNED] = "cudaHostAlloc",
                                                     [GB_KIND_PAGEABLE] = "malloc",
                                                     [GB_KIND_IPC] = "cudaMalloc"};

    return calls[kind];
}

const char *gb_native_way_call(enum gb_export_way way) {
    static const char *const calls[GB_EXPORT_WAYS] = {[GB_EXPORT_VMM] = "cuMemExportToShareableHandle",
                                                      [GB_EXPORT_POOL] = "cudaMemPoolExportPointer",
                                                      [GB_EXPORT_LEGACY] = "cudaIpcGetMemHandle",
                                                      [GB_EXPORT_MEMFD] = "memfd_create"};

    return calls[way];
}

/* --- gate --------------------------------------------------------------------------------------------------------- */

struct gb_gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
    unsigned refs;
};

struct gb_gate *gb_gate_new(void) {
    struct gb_gate *gate = calloc(1, sizeof(*gate));

    if (!gate)
        return NULL;
    gb_mutex_init(&gate->lock);
    pthread_cond_init(&gate->opened, NULL);
    gate->refs = 2;
    return gate;
}

void gb_gate_free(struct gb_gate *gate) {
    pthread_cond_destroy(&gate->opened);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

static void leave_locked(struct gb_gate *gate) {
    bool last = --gate->refs == 0;

    pthread_mutex_unlock(&gate->lock);
    if (last)
        gb_gate_free(gate);
}

void gb_gate_pass(void *arg) {
    struct gb_gate *gate = arg;

    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->opened, &gate->lock);
    leave_locked(gate);
}

void gb_gate_open(struct gb_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_signal(&gate->opened);
    leave_locked(gate);
}

/* --- memfd -------------------------------------------------------------------------------------------------------- */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* since Linux 6.3; some systems require it */
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static bool too_many(int fd) {
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd >= limit.rlim_cur / 2;
}

static int create(void) {
    int fd = memfd_create("gpubufd", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    return fd >= 0 || errno != EINVAL ? fd : memfd_create("gpubufd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

int gb_memfd_new(uint64_t bytes) {
    uint64_t pages = gb_memfd_pages(bytes);
    int saved;
    int fd;

    if (pages < bytes || pages > INT64_MAX) {
        errno = EFBIG;
        return -1;
    }
    fd = create();
    if (fd < 0)
        return -1;
    /* A read-only descriptor can be opened again through /proc, where only the file's mode restricts it. */
    if (ftruncate(fd, (off_t)pages) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0 && fchmod(fd, 0444) == 0) {
        if (!too_many(fd))
            return fd;
        errno = EMFILE;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Opens the file again for reading only; a duplicate would share the rights of fd. */
static int reopen(int fd) {
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int gb_memfd_export(int fd, uint64_t file_bytes, uint64_t offset, bool writable, struct gb_export *ret,
                    struct gb_error *err) {
    int given;

    if (fd < 0)
        return gb_error_set(
            err, GB_ERR_UNSUPPORTED,
            "this memory has no file of its own: when it was made, half of the daemon's descriptors were in "
            "use, or the system gave none");
    given = writable ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : reopen(fd);
    if (given < 0 && (errno == EMFILE || errno == ENFILE))
        return gb_error_errno(err, GB_ERR_SATURATED, "fcntl", errno);
    if (given < 0 && !writable)
        return gb_error_set(err, GB_ERR_UNSUPPORTED,
                            "a descriptor for reading only is opened through /proc/self/fd, which is not to be had "
                            "here (%s): mount /proc, or map for writing",
                            strerrordesc_np(errno));
    if (given < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "fcntl", errno);
    *ret = (struct gb_export){
        .way = GB_EXPORT_MEMFD, .fd = given, .map_bytes = gb_memfd_pages(file_bytes), .offset = offset};
    return 0;
}

/* --- files of clients --------------------------------------------------------------------------------------------- */

static int refuse(struct gb_error *err, const char *what, const char *instead) {
    return gb_error_set(err, GB_ERR_CANNOT_ADOPT, "%s: %s", what, instead);
}

/* Reads the seals first. Only the kernel's own memory has seals, so that no file system of a client answers the other
 * calls. */
int gb_memfd_check(int fd, uint64_t end, struct gb_error *err) {
    int seals = fcntl(fd, F_GET_SEALS);
    int flags = fcntl(fd, F_GETFL);
    struct statfs system;
    struct stat st;

    if (seals < 0)
        return refuse(err, "the descriptor is no memfd", "make the memory with memfd_create() and MFD_ALLOW_SEALING");
    if (fstatfs(fd, &system) < 0 || fstat(fd, &st) < 0)
        return gb_error_errno(err, GB_ERR_CANNOT_ADOPT, "fstat", errno);
    if (system.f_type != TMPFS_MAGIC || !S_ISREG(st.st_mode))
        return refuse(err, "the file is of huge pages", "make it with memfd_create() without MFD_HUGETLB");
    if ((flags & O_ACCMODE) != O_RDWR)
        return refuse(err, "the descriptor is not open for both reading and writing",
                      "hand over the one that "
                      "memfd_create() gave");
    if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return refuse(err, "the file is sealed against writing", "leave F_SEAL_WRITE and F_SEAL_FUTURE_WRITE out");
    if (!(seals & F_SEAL_SHRINK))
        return refuse(err, "the file could shrink under the daemon",
                      "add F_SEAL_SHRINK with fcntl(fd, F_ADD_SEALS, ...) once it has its size (memfd_create() with "
                      "MFD_ALLOW_SEALING)");
    if (st.st_size < 0 || (uint64_t)st.st_size < end)
        return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                            "the file has %lld bytes, and the buffer is to end at byte %llu: offset and bytes must lie "
                            "within it",
                            (long long)st.st_size, (unsigned long long)end);
    return 0;
}
