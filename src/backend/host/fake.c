/* Handles that cannot be opened, for tests of what stands around them: legacy=fake and ipc=fake. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/host/host.h"
#include "backend/memfd.h"
#include "base/crc32c.h"

/* Something of its own for each thing that it names. */
void gb_host_fake_handle(const void *of, unsigned char ret[GB_EXPORT_HANDLE_BYTES]) {
    memset(ret, 0, GB_EXPORT_HANDLE_BYTES);
    snprintf((char *)ret, GB_EXPORT_HANDLE_BYTES, "a handle of the host backend, %08x",
             (unsigned)gb_crc32c(0, &of, sizeof(of)));
}

/* A pool's descriptor is of an empty file: its importers would get no bytes. */
static int pool_file_locked(struct gb_pool *pool, int *ret_fd, struct gb_error *err) {
    int fd = pool->fd >= 0 ? pool->fd : gb_memfd_new(1);

    *ret_fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (*ret_fd < 0) {
        gb_error_errno(err, GB_ERR_SATURATED, "fcntl", errno);
        if (fd >= 0 && fd != pool->fd)
            close(fd);
        return -1;
    }
    pool->fd = fd;
    return 0;
}

int gb_host_fake_pool(struct gb_host *host, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                      struct gb_export *ret, struct gb_error *err) {
    struct gb_export got = {.way = GB_EXPORT_POOL, .fd = -1, .handle_bytes = GB_EXPORT_HANDLE_BYTES};
    int r;

    if (!pool)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "which pool the memory is from is not said");
    if (!pool->config.exportable)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "the pool was not created exportable");
    if (bytes > GB_EXPORT_POOL_MAX_BYTES)
        return gb_error_set(err, GB_ERR_UNSUPPORTED, "importers of one allocation of a pool die above %llu bytes",
                            GB_EXPORT_POOL_MAX_BYTES);
    pthread_mutex_lock(&host->lock);
    r = pool_file_locked(pool, &got.fd, err);
    pthread_mutex_unlock(&host->lock);
    if (r < 0)
        return -1;
    gb_host_fake_handle(place->ptr, got.handle);
    got.map_bytes = bytes;
    got.device = pool->device;
    *ret = got;
    return 0;
}
