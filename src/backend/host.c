/* The host backend as a whole: opening, devices, pinned memory, errors. */
#include "backend/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/native.h"
#include "backend/stub.h"
#include "base/parse.h"

#define PERMITTED "discrete, devices=N (1 to 16), bytes=SIZE (1M or more, such as 8G)"
#define BYTES_MIN (1ull << 20)

int gb_host_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

/* --- errors ------------------------------------------------------------------------------------------------------- */

int gb_host_error(struct gb_error *err, int number, const char *call, const char *fmt, ...) {
    const struct gb_native *native = gb_native_by_number(number);
    char text[256];
    va_list ap;

    if (err && err->code == GB_OK) {
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        gb_error_native(err, "host", number, native ? native->name : "unknown", call);
        gb_error_set(err, gb_native_code(number), "%s", text);
    }
    return -1;
}

int gb_host_no_memory(struct gb_error *err, const char *call) {
    return gb_error_set(err, GB_ERR_INTERNAL, "%s: the daemon itself is out of memory", call);
}

bool gb_host_device_ok(struct gb_host *host, int device, const char *call, struct gb_error *err) {
    if (device >= 0 && device < host->device_count)
        return true;
    gb_host_error(err, GB_HOST_INVALID_DEVICE, call, "there is no device %d; devices: 0 to %d", device,
                  host->device_count - 1);
    return false;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static int device_count(struct gb_backend *be) {
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

static int device_get(struct gb_backend *be, int device, struct gb_device_rec *ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_device_rec rec = {.index = device};
    int kind;

    if (!gb_host_device_ok(host, device, "cudaGetDeviceProperties", err))
        return -1;
    write_uuid(host, device, rec.uuid);
    snprintf(rec.name, sizeof(rec.name), "Host memory%s", host->discrete ? " (reached by copies only)" : "");
    rec.integrated = !host->discrete;
    rec.cpu_access = !host->discrete;
    rec.total_bytes = host->devices[device].total_bytes;
    pthread_mutex_lock(&host->lock);
    rec.free_bytes = rec.total_bytes - host->devices[device].reserved_bytes;
    pthread_mutex_unlock(&host->lock);
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        if (kind != GB_KIND_DEVICE)
            snprintf(rec.kind_missing[kind], sizeof(rec.kind_missing[kind]),
                     "the host backend offers kind device only so far");
    }
    *ret = rec;
    return 0;
}

static bool dead(struct gb_backend *be, struct gb_error *ret_why) {
    (void)be;
    (void)ret_why;
    return false;
}

/* --- pinned memory ------------------------------------------------------------------------------------------------ */

static int pin_alloc(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_pin *pin = calloc(1, sizeof(*pin));

    if (!pin)
        return gb_host_no_memory(err, "cudaHostAlloc");
    pin->segment = bytes > 0 ? gb_host_segment_map(bytes, false) : NULL;
    if (!pin->segment) {
        free(pin);
        return gb_host_error(err, bytes > 0 ? GB_HOST_NO_MEMORY : GB_HOST_INVALID_VALUE, "cudaHostAlloc",
                             "%zu bytes of pinned memory cannot be had", bytes);
    }
    /* Pinned memory is resident from the start; where the system cannot do this, the first use does. */
    madvise(pin->segment->real, bytes, MADV_POPULATE_WRITE);
    pthread_mutex_lock(&host->lock);
    pin->next = host->pins;
    host->pins = pin;
    pthread_mutex_unlock(&host->lock);
    *ret = pin->segment->real;
    return 0;
}

static void pin_free(struct gb_backend *be, void *ptr) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_pin **at = &host->pins;
    struct gb_host_pin *pin;

    pthread_mutex_lock(&host->lock);
    while (*at && (*at)->segment->real != ptr)
        at = &(*at)->next;
    pin = *at;
    if (pin)
        *at = pin->next;
    pthread_mutex_unlock(&host->lock);
    if (pin)
        gb_host_segment_unmap(pin->segment);
    free(pin);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void host_free(struct gb_host *host) {
    while (host->pins)
        pin_free(&host->base, host->pins->segment->real);
    gb_host_pools_free(host);
    gb_host_blocks_done(&host->live);
    free(host->spans.sorted);
    pthread_cond_destroy(&host->work);
    pthread_mutex_destroy(&host->lock);
    free(host);
}

static void host_close(struct gb_backend *be) {
    gb_host_workers_stop(gb_host_of(be));
    host_free(gb_host_of(be));
}

static const struct gb_backend_ops host_ops = {
    .name = "host",
    .close = host_close,
    .device_count = device_count,
    .device_get = device_get,
    .dead = dead,
    .pin_alloc = pin_alloc,
    .pin_free = pin_free,
    .pool_default = gb_host_pool_default,
    .pool_create = gb_host_pool_create,
    .pool_destroy = gb_host_pool_destroy,
    .pool_config = gb_host_pool_config,
    .pool_configure = gb_host_pool_configure,
    .pool_stat = gb_host_pool_stat,
    .pool_reset_peak = gb_host_pool_reset_peak,
    .pool_trim = gb_host_pool_trim,
    .stream_create = gb_host_stream_create,
    .stream_destroy = gb_host_stream_destroy,
    .stream_sync = gb_host_stream_sync,
    .stream_wait = gb_host_stream_wait,
    .stream_call = gb_host_stream_call,
    .event_create = gb_host_event_create,
    .event_destroy = gb_host_event_destroy,
    .event_record = gb_host_event_record,
    .event_mark = gb_host_event_mark,
    .event_query = gb_host_event_query,
    .event_elapsed = gb_host_event_elapsed,
    .watch = gb_host_watch,
    .alloc = gb_host_alloc,
    .free = gb_host_free,
    .copy = gb_host_copy,
    .fill = gb_host_fill,
    .peer_get = gb_stub_peer_get,
    .pool_access_set = gb_stub_pool_access_set,
    .pool_access_get = gb_stub_pool_access_get,
    .event_record_device = gb_stub_event_record_device,
    .kind_alloc = gb_stub_kind_alloc,
    .kind_free = gb_stub_kind_free,
    .move = gb_stub_move,
    .place_fill = gb_stub_place_fill,
    .prefetch = gb_stub_prefetch,
    .attach = gb_stub_attach,
    .attributes = gb_stub_attributes,
};

struct options {
    bool discrete;
    uint64_t devices;
    uint64_t bytes;
};

static int parse_word(const char *word, size_t len, struct options *options, struct gb_error *err) {
    if (len == 8 && memcmp(word, "discrete", 8) == 0) {
        options->discrete = true;
    } else if (len > 8 && memcmp(word, "devices=", 8) == 0) {
        if (gb_parse_u64(word + 8, len - 8, &options->devices) != GB_PARSE_OK || options->devices < 1 ||
            options->devices > GB_HOST_DEVICES_MAX)
            goto refuse;
    } else if (len > 6 && memcmp(word, "bytes=", 6) == 0) {
        if (gb_parse_size(word + 6, len - 6, &options->bytes) != GB_PARSE_OK || options->bytes < BYTES_MIN ||
            options->bytes > UINT64_MAX / 4)
            goto refuse;
    } else {
        goto refuse;
    }
    return 0;

refuse:
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "backend host: '%.*s' is not permitted; permitted: " PERMITTED,
                        len < 60 ? (int)len : 60, word);
}

static int parse_options(const char *args, struct options *options, struct gb_error *err) {
    *options = (struct options){
        .devices = 1,
        .bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2,
    };
    while (*args != '\0') {
        size_t len = strcspn(args, ",");

        if (parse_word(args, len, options, err) < 0)
            return -1;
        args += len;
        if (*args == ',' && *++args == '\0')
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "backend host: nothing follows the last comma");
    }
    return 0;
}

static int make_pools(struct gb_host *host, uint64_t bytes) {
    const struct gb_pool_config config = {
        .release_threshold_bytes = GB_UNLIMITED,
        .follow_event_dependencies = true,
        .allow_opportunistic = true,
        .allow_internal_dependencies = true,
    };
    int i;

    for (i = 0; i < host->device_count; i++) {
        host->devices[i].total_bytes = bytes;
        host->devices[i].default_pool = gb_host_pool_new_locked(host, i, &config);
        if (!host->devices[i].default_pool)
            return -1;
    }
    return 0;
}

int gb_host_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err) {
    struct options options;
    struct gb_host *host;

    if (parse_options(args, &options, err) < 0)
        return -1;
    host = calloc(1, sizeof(*host));
    if (!host)
        return gb_host_no_memory(err, "open");
    host->base.ops = &host_ops;
    host->discrete = options.discrete;
    host->device_count = (int)options.devices;
    pthread_mutex_init(&host->lock, NULL);
    pthread_cond_init(&host->work, NULL);
    if (gb_host_blocks_init(&host->live) < 0 || make_pools(host, options.bytes) < 0) {
        gb_host_no_memory(err, "open");
        goto fail;
    }
    if (gb_host_workers_start(host, err) < 0) {
        gb_host_workers_stop(host);
        goto fail;
    }
    snprintf(ret_note, GB_BACKEND_NOTE_SIZE, "host backend: %d simulated device%s of %llu MiB, %s", host->device_count,
             host->device_count > 1 ? "s" : "", (unsigned long long)(options.bytes >> 20),
             host->discrete ? "reached by copies only" : "memory shared with the CPU");
    *ret = &host->base;
    return 0;

fail:
    host_free(host);
    return -1;
}
