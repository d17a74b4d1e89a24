/* The devices of the host backend: their properties, their access to each other's memory, and errors with CUDA's
 * numbers. Also the backend's tables of allocations and segments by address, and handles that cannot be opened. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/common.h"
#include "backend/host/arena.h"
#include "backend/host/internal.h"
#include "base/hash.h"

/* --- errors ------------------------------------------------------------------------------------------------------- */

int gb_host_error(struct gb_error *err, int number, const char *call, const char *fmt, ...) {
    const struct gb_native *native = gb_native_by_number(number);
    char text[256];
    va_list ap;

    if (err && err->code == GB_OK) {
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        gb_error_native_text(err, "host", number, native ? native->name : "unknown", call,
                             native ? native->text : NULL);
        gb_error_set(err, gb_native_code(number), "%s", text);
    }
    return -1;
}

int gb_host_no_memory(struct gb_error *err, const char *call) {
    return gb_error_set(err, GB_ERR_INTERNAL, "%s: the daemon itself is out of memory", call);
}

/* --- what the machine has left ------------------------------------------------------------------------------------ */

static uint64_t given_locked(const struct gb_host *host) {
    uint64_t bytes = host->own_bytes + host->pin_bytes;
    int device;

    for (device = 0; device < host->device_count; device++)
        bytes += host->devices[device].reserved_bytes;
    return bytes;
}

void gb_host_left_read(struct gb_host *host) {
    uint64_t foreign;
    uint64_t given;

    pthread_mutex_lock(&host->lock);
    given = given_locked(host);
    foreign = host->foreign_bytes;
    pthread_mutex_unlock(&host->lock);
    gb_memory_budget_read(&host->budget, given, foreign);
}

uint64_t gb_host_left_locked(const struct gb_host *host) {
    return gb_memory_budget_left(&host->budget, given_locked(host));
}

int gb_host_left_refuse(struct gb_host *host, uint64_t left, uint64_t bytes, const char *call, struct gb_error *err) {
    uint64_t all = atomic_load(&host->budget.bytes);

    gb_error_numbers(err, all, all > left ? all - left : 0, bytes);
    return gb_host_error(err, GB_HOST_NO_MEMORY, call,
                         "%llu bytes do not fit: the machine, or the control group of the daemon, has %llu left",
                         (unsigned long long)bytes, (unsigned long long)left);
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

bool gb_host_device_ok(struct gb_host *host, int device, const char *call, struct gb_error *err) {
    if (device >= 0 && device < host->device_count)
        return true;
    gb_host_error(err, GB_HOST_INVALID_DEVICE, call, "there is no device %d; devices: 0 to %d", device,
                  host->device_count - 1);
    return false;
}

int gb_host_device_count(struct gb_backend *be) {
    return gb_host_of(be)->device_count;
}

static uint64_t mix(uint64_t hash, const char *text) {
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
    return hash;
}

/* The same on every start of one machine. */
static void write_uuid(const struct gb_host *host, int device, char *out) {
    char machine[64] = "";
    uint64_t a;
    uint64_t b;
    FILE *f = fopen("/etc/machine-id", "re");

    if (f) {
        if (!fgets(machine, sizeof(machine), f))
            machine[0] = '\0';
        fclose(f);
    }
    if (machine[0] == '\0')
        gethostname(machine, sizeof(machine) - 1);
    a = mix(0xcbf29ce484222325ull + (uint64_t)device, machine);
    b = mix(a ^ 0x9e3779b97f4a7c15ull, host->discrete ? "discrete" : "integrated");
    snprintf(out, GB_UUID_TEXT_SIZE, "HOST-%08x-%04x-%04x-%04x-%012llx", (unsigned)(a >> 32),
             (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xffff, (unsigned)(b >> 48),
             (unsigned long long)(b & 0xffffffffffffull));
}

static void missing(struct gb_device_rec *rec, enum gb_capability capability, const char *why) {
    snprintf(rec->cap_missing[capability], sizeof(rec->cap_missing[capability]), "%s", why);
}

static void write_capabilities(const struct gb_host *host, struct gb_device_rec *rec) {
    if (gb_host_poolless(host, rec->index)) {
        missing(rec, GB_CAP_MEMORY_POOLS, GB_HOST_NO_POOLS);
        snprintf(rec->kind_missing[GB_KIND_DEVICE], GB_REASON_SIZE, "%s", GB_HOST_NO_POOLS);
    }
    if (!host->ipc_fake || gb_host_poolless(host, rec->index))
        missing(rec, GB_CAP_POOL_EXPORT_FD, "pools of the host backend are of this process alone; kind shared is not");
    missing(rec, GB_CAP_VMM_EXPORT_FD, "there is no GPU: kinds shared, pinned and pageable are exported by memfd");
    if (!host->legacy_fake)
        missing(rec, GB_CAP_LEGACY_IPC, "CUDA's handles name memory of a GPU only");
    if (host->discrete)
        missing(rec, GB_CAP_CPU_ACCESS, "only copies reach the memory of host:discrete");
    if (host->discrete)
        missing(rec, GB_CAP_PAGEABLE_MEMORY_ACCESS, "host:discrete keeps apart what the device and the CPU reach");
    if (host->managed_attach)
        missing(rec, GB_CAP_CONCURRENT_MANAGED_ACCESS, "the backend was opened with managed=attach");
    if (host->device_count < 2)
        missing(rec, GB_CAP_PEER_ACCESS, "there is no other device");
    else if (!host->peers)
        missing(rec, GB_CAP_PEER_ACCESS, "the backend was opened with peers=no");
}

int gb_host_device_get(struct gb_backend *be, int device, struct gb_device_rec *ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_device_rec rec = {.index = device};
    uint64_t left;
    int kind;

    if (!gb_host_device_ok(host, device, "cudaGetDeviceProperties", err))
        return -1;
    write_uuid(host, device, rec.uuid);
    snprintf(rec.name, sizeof(rec.name), "Host memory%s", host->discrete ? " (reached by copies only)" : "");
    rec.integrated = !host->discrete || host->integrated;
    rec.cpu_access = !host->discrete;
    rec.total_bytes = host->devices[device].total_bytes;
    gb_host_left_read(host);
    pthread_mutex_lock(&host->lock);
    rec.free_bytes = rec.total_bytes - host->devices[device].reserved_bytes;
    left = gb_host_left_locked(host);
    pthread_mutex_unlock(&host->lock);
    rec.free_bytes = left < rec.free_bytes ? left : rec.free_bytes;
    write_capabilities(host, &rec);
    for (kind = 0; kind < GB_KIND_COUNT; kind++)
        rec.kind_cpu[kind] = !host->discrete || !gb_kind_of_device((enum gb_kind)kind) || kind == GB_KIND_MANAGED;
    rec.managed_attach = host->managed_attach;
    *ret = rec;
    return 0;
}

int gb_host_peer_get(struct gb_backend *be, int device, int peer, struct gb_peer_rec *ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_peer_rec rec = {.device = device, .peer = peer};

    if (!gb_host_device_ok(host, device, "cudaDeviceCanAccessPeer", err) ||
        !gb_host_device_ok(host, peer, "cudaDeviceCanAccessPeer", err))
        return -1;
    rec.can_access = device == peer || host->peers;
    rec.native_atomics = rec.can_access;
    if (!rec.can_access)
        snprintf(rec.why_not, sizeof(rec.why_not), "the backend was opened with peers=no");
    *ret = rec;
    return 0;
}

int gb_host_pool_access_set(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access access,
                            struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    if (!gb_host_device_ok(host, device, "cudaMemPoolSetAccess", err))
        return -1;
    if ((unsigned)access >= GB_POOL_ACCESS_COUNT)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a pool has no access %d", (int)access);
    if (device == pool->device && access == GB_POOL_ACCESS_NONE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a pool is always open to its own device, %d", device);
    if (device != pool->device && !host->peers)
        return gb_native_refuse(err, be->domain, GB_NATIVE_INVALID_DEVICE, "cudaMemPoolSetAccess",
                                "device %d cannot reach the memory of device %d: the backend was opened with peers=no",
                                device, pool->device);
    pthread_mutex_lock(&host->lock);
    if (access == GB_POOL_ACCESS_READ_WRITE)
        pool->open_to |= 1u << device;
    else
        pool->open_to &= ~(1u << device);
    pthread_mutex_unlock(&host->lock);
    return 0;
}

int gb_host_pool_access_get(struct gb_backend *be, struct gb_pool *pool, int device, enum gb_pool_access *ret,
                            struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    if (!gb_host_device_ok(host, device, "cudaMemPoolGetAccess", err))
        return -1;
    pthread_mutex_lock(&host->lock);
    *ret = (pool->open_to & 1u << device) != 0 ? GB_POOL_ACCESS_READ_WRITE : GB_POOL_ACCESS_NONE;
    pthread_mutex_unlock(&host->lock);
    return 0;
}

/* --- blocks by address -------------------------------------------------------------------------------------------- */

static size_t bucket_of(const struct gb_host_blocks *blocks, const void *base) {
    return (size_t)(((uintptr_t)base / GB_HOST_GRAIN_BYTES * 0x9e3779b97f4a7c15ull) >> 20) & (blocks->size - 1);
}

int gb_host_blocks_init(struct gb_host_blocks *blocks) {
    blocks->size = 256;
    blocks->count = 0;
    blocks->buckets = calloc(blocks->size, sizeof(struct gb_host_block *));
    return blocks->buckets ? 0 : -1;
}

void gb_host_blocks_done(struct gb_host_blocks *blocks) {
    free(blocks->buckets);
    blocks->buckets = NULL;
}

static void link_block(struct gb_host_blocks *blocks, struct gb_host_block *block) {
    struct gb_host_block **bucket = &blocks->buckets[bucket_of(blocks, gb_host_block_base(block))];

    block->bin_next = *bucket;
    *bucket = block;
}

/* If memory is exhausted, the chains grow longer instead. */
static void grow(struct gb_host_blocks *blocks) {
    struct gb_host_blocks bigger = {.size = blocks->size * 4, .count = blocks->count};
    size_t i;

    bigger.buckets = calloc(bigger.size, sizeof(struct gb_host_block *));
    if (!bigger.buckets)
        return;
    for (i = 0; i < blocks->size; i++) {
        while (blocks->buckets[i]) {
            struct gb_host_block *block = blocks->buckets[i];

            blocks->buckets[i] = block->bin_next;
            link_block(&bigger, block);
        }
    }
    free(blocks->buckets);
    *blocks = bigger;
}

void gb_host_blocks_put(struct gb_host_blocks *blocks, struct gb_host_block *block) {
    if (blocks->count >= blocks->size)
        grow(blocks);
    link_block(blocks, block);
    blocks->count++;
}

struct gb_host_block *gb_host_blocks_take(struct gb_host_blocks *blocks, const void *base) {
    struct gb_host_block **at = &blocks->buckets[bucket_of(blocks, base)];
    struct gb_host_block *block;

    while (*at && gb_host_block_base(*at) != base)
        at = &(*at)->bin_next;
    block = *at;
    if (block) {
        *at = block->bin_next;
        block->bin_next = NULL;
        blocks->count--;
    }
    return block;
}

/* --- segments by address ------------------------------------------------------------------------------------------ */

/* The number of segments that begin at or before p. */
static size_t rank_of(const struct gb_host_ranges *ranges, const void *p) {
    size_t low = 0;
    size_t high = ranges->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)ranges->sorted[middle]->base <= (uintptr_t)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int gb_host_ranges_reserve(struct gb_host_ranges *ranges) {
    size_t size = ranges->size > 0 ? ranges->size * 2 : 16;
    struct gb_host_segment **sorted;

    if (ranges->count < ranges->size)
        return 0;
    sorted = realloc(ranges->sorted, size * sizeof(struct gb_host_segment *));
    if (!sorted)
        return -1;
    ranges->sorted = sorted;
    ranges->size = size;
    return 0;
}

void gb_host_ranges_put(struct gb_host_ranges *ranges, struct gb_host_segment *segment) {
    size_t at = rank_of(ranges, segment->base);

    memmove(ranges->sorted + at + 1, ranges->sorted + at, (ranges->count - at) * sizeof(struct gb_host_segment *));
    ranges->sorted[at] = segment;
    ranges->count++;
}

void gb_host_ranges_take(struct gb_host_ranges *ranges, struct gb_host_segment *segment) {
    size_t after = rank_of(ranges, segment->base);

    memmove(ranges->sorted + after - 1, ranges->sorted + after,
            (ranges->count - after) * sizeof(struct gb_host_segment *));
    ranges->count--;
}

struct gb_host_segment *gb_host_ranges_find(const struct gb_host_ranges *ranges, const void *p) {
    size_t rank = rank_of(ranges, p);
    struct gb_host_segment *segment = rank > 0 ? ranges->sorted[rank - 1] : NULL;

    return segment && (uintptr_t)p - (uintptr_t)segment->base < segment->bytes ? segment : NULL;
}

/* --- handles that cannot be opened -------------------------------------------------------------------------------- */

/* They are for tests: legacy=fake and ipc=fake. */

/* Writes a handle that differs for each `of`. */
void gb_host_fake_handle(const void *of, unsigned char ret[GB_EXPORT_HANDLE_BYTES]) {
    memset(ret, 0, GB_EXPORT_HANDLE_BYTES);
    snprintf((char *)ret, GB_EXPORT_HANDLE_BYTES, "a handle of the host backend, %08x",
             (unsigned)gb_crc32c(0, &of, sizeof(of)));
}

/* Gives a descriptor of an empty file for the pool. Returns 0 or -1. */
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
        return gb_native_refuse(err, host->base.domain, GB_NATIVE_INVALID_VALUE, "cudaMemPoolExportToShareableHandle",
                                "the pool was not created exportable");
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
