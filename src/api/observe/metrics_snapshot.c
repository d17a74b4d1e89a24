#include "api/observe/metrics_snapshot.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/observe/metrics_sessions.h"
#include "api/reply/stats_json.h"
#include "base/clock.h"

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
}

static void read_directions(struct gb_sheet *sheet) {
    const struct gb_counters *c = &sheet->daemon.core.counters;

    sheet->directions[0] = (struct gb_direction_numbers){.name = "upload",
                                                         .count = c->uploads,
                                                         .bytes = c->upload_bytes,
                                                         .copy_ns = c->upload_copy_ns,
                                                         .queue_ns = c->upload_queue_ns,
                                                         .ns = c->upload_ns};
    sheet->directions[1] = (struct gb_direction_numbers){.name = "download",
                                                         .count = c->downloads,
                                                         .bytes = c->download_bytes,
                                                         .copy_ns = c->download_copy_ns,
                                                         .queue_ns = c->download_queue_ns,
                                                         .ns = c->download_ns};
    sheet->directions[2] = (struct gb_direction_numbers){.name = "copy",
                                                         .count = c->device_copies,
                                                         .bytes = c->device_copy_bytes,
                                                         .copy_ns = c->device_copy_ns,
                                                         .queue_ns = c->device_copy_queue_ns};
}

static void read_failed(struct gb_sheet *sheet) {
    int what;
    int why;

    for (what = 0; what < GB_FAILED_COUNTED; what++) {
        for (why = 0; why < GB_FAILURES; why++)
            sheet->failed[what][why] =
                gb_counters_failed(&sheet->daemon.core.counters, (enum gb_failed)what, (enum gb_failure)why);
    }
}

static int read_devices(struct gb_sheet *sheet, const struct gb_api *api, struct gb_error *err) {
    int i;

    sheet->devices = calloc((size_t)api->devices + 1, sizeof(*sheet->devices));
    sheet->memory = calloc((size_t)api->devices + 1, sizeof(*sheet->memory));
    if (!sheet->devices || !sheet->memory)
        return no_memory(err);
    for (i = 0; i < api->devices; i++) {
        struct gb_device_numbers now;

        if (gb_device_get(api->core, i, &sheet->devices[i], err) < 0 || gb_device_numbers(api->core, i, &now, err) < 0)
            return -1;
        sheet->memory[i] = now.memory;
    }
    sheet->device_count = api->devices;
    return 0;
}

/* NVML names processes as the host does: inside a container this one is among the others. Where the memory of one is not known the sum is not. */
static void read_processes(struct gb_sheet_health *h) {
    unsigned i;

    h->own_bytes = h->others_bytes = h->health.has_processes ? 0 : GB_METRIC_UNKNOWN;
    if (h->health.processes_more > 0)
        h->others_bytes = GB_METRIC_UNKNOWN;
    for (i = 0; h->health.has_processes && i < h->health.process_count; i++) {
        const struct gb_health_process *p = &h->health.processes[i];
        uint64_t *to = p->pid == (uint32_t)getpid() ? &h->own_bytes : &h->others_bytes;

        if (p->used_bytes == UINT64_MAX)
            *to = GB_METRIC_UNKNOWN;
        else if (*to != GB_METRIC_UNKNOWN)
            *to += p->used_bytes;
    }
}

/* Not from a simulated device, which would fill pages with what nobody knows: those have no source. */
static int read_health(struct gb_sheet *sheet, const struct gb_api *api, struct gb_error *err) {
    size_t count = (size_t)api->devices;
    int64_t now_us = gb_wall_us();
    size_t i;
    size_t k;

    sheet->health = calloc(count + 1, sizeof(*sheet->health));
    sheet->reasons = calloc(count * GB_CLOCK_REASONS + 1, sizeof(*sheet->reasons));
    if (!sheet->health || !sheet->reasons)
        return no_memory(err);
    for (i = 0; i < count; i++) {
        struct gb_sheet_health *h = &sheet->health[i];

        if (gb_device_health(api->core, (int)i, &h->health, err) < 0)
            return -1;
        read_processes(h);
        h->age_ns = GB_METRIC_UNKNOWN;
        if (h->health.source != GB_HEALTH_NONE && now_us >= h->health.at_us)
            h->age_ns = (uint64_t)(now_us - h->health.at_us) * 1000;
        for (k = 0; k < GB_CLOCK_REASONS; k++)
            sheet->reasons[i * GB_CLOCK_REASONS + k] =
                h->health.has_reasons ? h->health.reasons >> k & 1 : GB_METRIC_UNKNOWN;
    }
    return 0;
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

struct pool_walk {
    struct gb_sheet *sheet;
    struct gb_core *core;
    struct gb_name session; /* whose pools are being visited */
    struct gb_sheet_list *sessions;
};

static int add_pool(void *arg, const struct gb_pool_view *view, struct gb_error *err) {
    struct pool_walk *walk = arg;
    struct gb_sheet *sheet = walk->sheet;
    size_t room = sheet->pool_room ? sheet->pool_room * 2 : 16;
    struct gb_sheet_pool *bigger;

    if (sheet->pool_count == sheet->pool_room) {
        bigger = realloc(sheet->pools, room * sizeof(*bigger));
        if (!bigger)
            return no_memory(err);
        sheet->pools = bigger;
        sheet->pool_room = room;
    }
    sheet->pools[sheet->pool_count++] = (struct gb_sheet_pool){.session = walk->session, .view = *view};
    return 0;
}

static int add_session(void *arg, const struct gb_session_view *view, struct gb_error *err) {
    struct pool_walk *walk = arg;
    struct gb_error gone = GB_ERROR_INIT;
    bool more;

    walk->session = view->rec.name;
    if (gb_sheet_list_add(walk->sessions, view) < 0)
        return no_memory(err);
    /* After no id at all: its own, without the devices' that every session sees. */
    if (gb_pool_list(walk->core, &view->rec.name, -1, UINT_MAX, add_pool, walk, &more, &gone) == 0 ||
        gone.code == GB_ERR_SESSION_NOT_FOUND) /* deleted meanwhile */
        return 0;
    *err = gone;
    return -1;
}

static int read_pools(struct gb_sheet *sheet, const struct gb_api *api, struct gb_sheet_list *sessions,
                      struct gb_error *err) {
    struct pool_walk walk = {.sheet = sheet, .core = api->core, .sessions = sessions};
    struct gb_pool_view view;
    bool more;
    unsigned i;

    for (i = 0; i < gb_pool_count(api->core); i++) {
        if (gb_pool_at(api->core, i, &view, err) < 0 || add_pool(&walk, &view, err) < 0)
            return -1;
    }
    return gb_session_list(api->core, 0, UINT_MAX, add_session, &walk, &more, err);
}

static int read_sessions(struct gb_sheet *sheet, const struct gb_api *api, struct gb_error *err) {
    struct gb_sheet_list list = {.most = api->limits.metrics_sessions};
    int r = read_pools(sheet, api, &list, err);

    if (r == 0)
        r = gb_sheet_list_pick(&list, api->core, sheet, err);
    free(list.items);
    return r;
}

int gb_sheet_read(struct gb_sheet *sheet, struct gb_api *api, struct gb_http_server *server, struct gb_error *err) {
    *sheet = (struct gb_sheet){.pool_count = 0};
    gb_core_stats(api->core, &sheet->daemon.core);
    gb_key_stats(api->core, &sheet->daemon.keys);
    gb_http_server_stat(server, &sheet->daemon.http);
    gb_api_process(api, &sheet->daemon.process);
    sheet->daemon.started_ns = api->process_started_ns;
    read_directions(sheet);
    read_failed(sheet);
    gb_operations_count(&api->operations, sheet->operations);
    if (read_devices(sheet, api, err) < 0 || read_health(sheet, api, err) < 0 || read_sessions(sheet, api, err) < 0) {
        gb_sheet_done(sheet);
        return -1;
    }
    return 0;
}

void gb_sheet_done(struct gb_sheet *sheet) {
    free(sheet->devices);
    free(sheet->health);
    free(sheet->reasons);
    free(sheet->pools);
    free(sheet->sessions);
    free(sheet->memory);
    *sheet = (struct gb_sheet){.pool_count = 0};
}
