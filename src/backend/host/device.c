/* What the host backend's devices are, can do, and may do with each other's memory. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/host/host.h"

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
    int kind;

    if (!gb_host_device_ok(host, device, "cudaGetDeviceProperties", err))
        return -1;
    write_uuid(host, device, rec.uuid);
    snprintf(rec.name, sizeof(rec.name), "Host memory%s", host->discrete ? " (reached by copies only)" : "");
    rec.integrated = !host->discrete || host->integrated;
    rec.cpu_access = !host->discrete;
    rec.total_bytes = host->devices[device].total_bytes;
    pthread_mutex_lock(&host->lock);
    rec.free_bytes = rec.total_bytes - host->devices[device].reserved_bytes;
    pthread_mutex_unlock(&host->lock);
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
        return gb_error_set(err, GB_ERR_UNSUPPORTED,
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
