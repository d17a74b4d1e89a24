/* The host backend as a whole: its options, its vtable, opening and closing, and pinned memory. backend.c opens it; the
 * other files of this folder have the functions of the vtable. */
#include "backend/host/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/common.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread.h"

#define PERMITTED                                                                                                      \
    "discrete, devices=N (1 to 16), bytes=SIZE (1M or more, such as 8G), peers=yes or peers=no, managed=attach, "      \
    "legacy=fake, ipc=fake, free=waits, integrated, poolless=DEVICE"
#define BYTES_MIN (1ull << 20)

int gb_host_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

static bool dead(struct gb_backend *be, struct gb_error *ret_why) {
    (void)be;
    (void)ret_why;
    return false;
}

/* --- pinned memory ------------------------------------------------------------------------------------------------ */

static int pin_alloc(struct gb_backend *be, size_t bytes, void **ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_pin *pin = calloc(1, sizeof(*pin));
    uint64_t left;

    if (!pin)
        return gb_host_no_memory(err, "cudaHostAlloc");
    gb_host_left_read(host);
    pthread_mutex_lock(&host->lock);
    left = gb_host_left_locked(host);
    pthread_mutex_unlock(&host->lock);
    if (bytes > left) {
        free(pin);
        return gb_host_left_refuse(host, left, bytes, "cudaHostAlloc", err);
    }
    pin->segment = bytes > 0 ? gb_host_segment_map(bytes, false) : NULL;
    if (!pin->segment) {
        free(pin);
        return gb_host_error(err, bytes > 0 ? GB_HOST_NO_MEMORY : GB_HOST_INVALID_VALUE, "cudaHostAlloc",
                             "%zu bytes of pinned memory cannot be had", bytes);
    }
    /* Pinned memory is resident from the start. If the system cannot do this, the first use does. */
    madvise(pin->segment->real, bytes, MADV_POPULATE_WRITE);
    pthread_mutex_lock(&host->lock);
    pin->next = host->pins;
    host->pins = pin;
    host->pin_bytes += bytes;
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
    if (pin) {
        *at = pin->next;
        host->pin_bytes -= pin->segment->bytes;
    }
    pthread_mutex_unlock(&host->lock);
    if (pin)
        gb_host_segment_unmap(pin->segment);
    free(pin);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void host_free(struct gb_host *host) {
    int i;

    while (host->pins)
        pin_free(&host->base, host->pins->segment->real);
    for (i = 0; i < host->device_count; i++)
        gb_host_stream_unref_locked(host->devices[i].gather);
    gb_host_pools_free(host);
    gb_host_kinds_free(host);
    gb_host_blocks_done(&host->live);
    free(host->spans.sorted);
    pthread_cond_destroy(&host->work);
    pthread_cond_destroy(&host->freed);
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
    .device_count = gb_host_device_count,
    .device_get = gb_host_device_get,
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
    .stream_query = gb_host_stream_query,
    .stream_wait = gb_host_stream_wait,
    .stream_call = gb_host_stream_call,
    .stream_hold = gb_host_stream_hold,
    .stream_release = gb_host_stream_release,
    .event_create = gb_host_event_create,
    .event_destroy = gb_host_event_destroy,
    .event_record = gb_host_event_record,
    .event_mark = gb_host_event_mark,
    .event_query = gb_host_event_query,
    .event_sync = gb_host_event_sync,
    .event_elapsed = gb_host_event_elapsed,
    .watch = gb_host_watch,
    .alloc = gb_host_alloc,
    .free = gb_host_free,
    .copy = gb_host_copy,
    .fill = gb_host_fill,
    .peer_get = gb_host_peer_get,
    .pool_access_set = gb_host_pool_access_set,
    .pool_access_get = gb_host_pool_access_get,
    .event_record_device = gb_host_event_record_device,
    .kind_alloc = gb_host_kind_alloc,
    .kind_keeps = gb_host_kind_keeps,
    .kind_take = gb_host_kind_take,
    .kind_free = gb_host_kind_free,
    .move = gb_host_move,
    .box = gb_host_box,
    .place_fill = gb_host_location_fill,
    .prefetch = gb_host_prefetch,
    .attach = gb_host_attach,
    .attributes = gb_host_attributes,
    .export = gb_host_export,
    .event_create_shared = gb_host_event_create_shared,
    .event_export = gb_host_event_export,
    .import = gb_host_import,
    .import_end = gb_host_import_end,
};

struct options {
    bool discrete;
    bool peers;
    bool managed_attach;
    bool legacy_fake;
    bool ipc_fake;
    bool free_waits;
    uint32_t poolless;
    bool integrated;
    uint64_t devices;
    uint64_t bytes;
};

static bool is(const char *word, size_t len, const char *what) {
    return len == strlen(what) && memcmp(word, what, len) == 0;
}

/* Returns false if the word is no number of a possible device. */
static bool parse_poolless(const char *word, size_t len, uint32_t *ret) {
    uint64_t device = 0;

    if (gb_parse_u64(word, len, &device) != GB_PARSE_OK || device >= GB_HOST_DEVICES_MAX)
        return false;
    *ret |= 1u << device;
    return true;
}

static int parse_word(const char *word, size_t len, struct options *options, struct gb_error *err) {
    if (is(word, len, "discrete")) {
        options->discrete = true;
    } else if (is(word, len, "peers=yes") || is(word, len, "peers=no")) {
        options->peers = is(word, len, "peers=yes");
    } else if (is(word, len, "managed=attach")) {
        options->managed_attach = true;
    } else if (is(word, len, "legacy=fake")) {
        options->legacy_fake = true;
    } else if (is(word, len, "ipc=fake")) {
        options->ipc_fake = true;
    } else if (is(word, len, "free=waits")) {
        options->free_waits = true;
    } else if (is(word, len, "integrated")) {
        options->integrated = true;
    } else if (len > 9 && memcmp(word, "poolless=", 9) == 0) {
        if (!parse_poolless(word + 9, len - 9, &options->poolless))
            goto refuse;
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

/* Checks poolless= against devices=, which may come in any order. */
static int check_poolless(const struct options *options, struct gb_error *err) {
    uint32_t beyond = options->poolless >> options->devices << options->devices;

    if (beyond == 0)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "backend host: poolless=%d names a device that is not there: the last is device %d (devices=N)",
                        __builtin_ctz(beyond), (int)options->devices - 1);
}

/* The memory that the process may use, so that a full device is reported before a control group's limit kills it. */
static uint64_t memory_there(void) {
    uint64_t bytes = gb_memory_there("");

    return bytes > 0 ? bytes : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int parse_options(const char *args, struct options *options, struct gb_error *err) {
    *options = (struct options){
        .devices = 1,
        .peers = true,
        .bytes = memory_there() / 2,
    };
    while (*args != '\0') {
        size_t len = strcspn(args, ",");

        if (parse_word(args, len, options, err) < 0)
            return -1;
        args += len;
        if (*args == ',' && *++args == '\0')
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "backend host: nothing follows the last comma");
    }
    return check_poolless(options, err);
}

static int make_devices(struct gb_host *host, uint64_t bytes) {
    const struct gb_pool_config config = {
        .release_threshold_bytes = gb_pool_default_threshold(host->integrated, bytes),
        .follow_event_dependencies = true,
        .allow_opportunistic = true,
        .allow_internal_dependencies = true,
    };
    int i;

    for (i = 0; i < host->device_count; i++) {
        host->devices[i].total_bytes = bytes;
        host->devices[i].default_pool = gb_host_pool_new_locked(host, i, &config);
        host->devices[i].gather = gb_host_stream_new(host, i);
        if (!host->devices[i].default_pool || !host->devices[i].gather)
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
    host->base = (struct gb_backend){.ops = &host_ops, .domain = "host"};
    host->discrete = options.discrete;
    host->peers = options.peers;
    host->managed_attach = options.managed_attach;
    host->legacy_fake = options.legacy_fake;
    host->ipc_fake = options.ipc_fake;
    host->free_waits = options.free_waits;
    host->poolless = options.poolless;
    host->integrated = options.integrated;
    host->machine_bytes = memory_there();
    gb_memory_budget_init(&host->budget, "");
    host->device_count = (int)options.devices;
    gb_mutex_init(&host->lock);
    pthread_cond_init(&host->work, NULL);
    pthread_cond_init(&host->freed, NULL);
    if (gb_host_blocks_init(&host->live) < 0 || make_devices(host, options.bytes) < 0) {
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
