#include "backend/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* of Linux 6.3; some systems permit no other */
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
    /* A read-only descriptor can be opened anew through /proc, and the file's mode is all that is asked then. */
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

/* Only a file that is opened anew has rights of its own. */
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
