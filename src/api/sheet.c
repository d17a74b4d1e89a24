#include "api/sheet.h"

#include <limits.h>
#include <stdlib.h>

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
                                                         .failed = c->uploads_failed,
                                                         .ns = c->upload_ns};
    sheet->directions[1] = (struct gb_direction_numbers){.name = "download",
                                                         .count = c->downloads,
                                                         .bytes = c->download_bytes,
                                                         .copy_ns = c->download_copy_ns,
                                                         .queue_ns = c->download_queue_ns,
                                                         .failed = c->downloads_failed,
                                                         .ns = c->download_ns};
    sheet->directions[2] = (struct gb_direction_numbers){.name = "copy",
                                                         .count = c->device_copies,
                                                         .bytes = c->device_copy_bytes,
                                                         .copy_ns = c->device_copy_ns,
                                                         .queue_ns = c->device_copy_queue_ns};
}

static int read_devices(struct gb_sheet *sheet, const struct gb_api *api, struct gb_error *err) {
    int i;

    sheet->devices = calloc((size_t)api->devices + 1, sizeof(*sheet->devices));
    if (!sheet->devices)
        return no_memory(err);
    for (i = 0; i < api->devices; i++) {
        if (gb_device_get(api->core, i, &sheet->devices[i], err) < 0)
            return -1;
    }
    sheet->device_count = api->devices;
    return 0;
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
    /* After no id at all: its own, without the devices' that every session sees. */
    if (gb_pool_list(walk->core, &view->rec.name, -1, UINT_MAX, add_pool, walk, &more, &gone) == 0 ||
        gone.code == GB_ERR_SESSION_NOT_FOUND) /* deleted meanwhile */
        return 0;
    *err = gone;
    return -1;
}

static int read_pools(struct gb_sheet *sheet, const struct gb_api *api, struct gb_error *err) {
    struct pool_walk walk = {.sheet = sheet, .core = api->core};
    struct gb_pool_view view;
    bool more;
    unsigned i;

    for (i = 0; i < gb_pool_count(api->core); i++) {
        if (gb_pool_at(api->core, i, &view, err) < 0 || add_pool(&walk, &view, err) < 0)
            return -1;
    }
    return gb_session_list(api->core, 0, UINT_MAX, add_session, &walk, &more, err);
}

int gb_sheet_read(struct gb_sheet *sheet, struct gb_api *api, struct gb_http_server *server, struct gb_error *err) {
    *sheet = (struct gb_sheet){.pool_count = 0};
    gb_core_stats(api->core, &sheet->daemon.core);
    gb_key_stats(api->core, &sheet->daemon.keys);
    gb_http_server_stat(server, &sheet->daemon.http);
    gb_process_read(&sheet->daemon.process);
    sheet->daemon.started_ns = api->process_started_ns;
    read_directions(sheet);
    gb_operations_count(&api->operations, sheet->operations);
    if (read_devices(sheet, api, err) < 0 || read_health(sheet, api, err) < 0 || read_pools(sheet, api, err) < 0) {
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
    *sheet = (struct gb_sheet){.pool_count = 0};
}
