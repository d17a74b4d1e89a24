/* Devices: what they are and how they are; what copies, allocations and pinning cost. What never changes of a device is
 * read once, before the server starts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/pipeline/async.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"

/* --- devices ------------------------------------------------------------------------------------------------------ */

/* /v1/devices */

/* --- what does not change ----------------------------------------------------------------------------------------- */

int gb_api_read_devices(struct gb_api *api, struct gb_backend *backend) {
    struct gb_device_rec rec;
    size_t count;
    int i;

    api->devices = gb_device_count(api->core);
    count = (size_t)api->devices;
    api->uuid = calloc(count + 1, sizeof(*api->uuid));
    api->peers = calloc(count * count + 1, sizeof(*api->peers));
    if (!api->uuid || !api->peers)
        return -1;
    for (i = 0; i < api->devices; i++) {
        if (gb_device_get(api->core, i, &rec, NULL) == 0)
            memcpy(api->uuid[i], rec.uuid, sizeof(rec.uuid));
    }
    for (i = 0; i < api->devices * api->devices; i++) {
        struct gb_peer_rec *peer = &api->peers[i];
        struct gb_error why = GB_ERROR_INIT;

        if (gb_peer_get(backend, i / api->devices, i % api->devices, peer, &why) < 0) {
            *peer = (struct gb_peer_rec){.device = i / api->devices, .peer = i % api->devices};
            snprintf(peer->why_not, sizeof(peer->why_not), "%.95s", why.detail);
        }
    }
    return 0;
}

/* --- rendering ---------------------------------------------------------------------------------------------------- */

static void render_kinds(struct gb_json_writer *out, const struct gb_device_rec *rec) {
    int kind;

    gb_json_open(out, "kinds", '{');
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        const char *missing = rec->kind_missing[kind];

        gb_json_open(out, gb_kind_name((enum gb_kind)kind), '{');
        gb_json_put_bool(out, "supported", missing[0] == '\0');
        if (missing[0] != '\0')
            gb_json_put_string(out, "reason", missing);
        gb_json_put_bool(out, "cpu_access", missing[0] == '\0' && rec->kind_cpu[kind]);
        gb_json_close(out, '}');
    }
    gb_json_close(out, '}');
}

static void render_capabilities(struct gb_json_writer *out, const struct gb_device_rec *rec) {
    int cap;

    gb_json_open(out, "capabilities", '{');
    for (cap = 0; cap < GB_CAP_COUNT; cap++) {
        gb_json_open(out, gb_capability_name((enum gb_capability)cap), '{');
        gb_json_put_bool(out, "available", rec->cap_missing[cap][0] == '\0');
        if (rec->cap_missing[cap][0] != '\0')
            gb_json_put_string(out, "reason", rec->cap_missing[cap]);
        gb_json_close(out, '}');
    }
    gb_json_close(out, '}');
}

/* Writes one row of the matrix; a device is no peer of its own. */
static void render_peers(struct gb_json_writer *out, const struct gb_api *api, int device) {
    int i;

    gb_json_open(out, "peers", '[');
    for (i = 0; i < api->devices; i++) {
        const struct gb_peer_rec *peer = &api->peers[device * api->devices + i];

        if (i == device)
            continue;
        gb_json_open(out, NULL, '{');
        gb_render_device_id(out, "device", api, i);
        gb_json_put_bool(out, "can_access", peer->can_access);
        if (peer->why_not[0] != '\0')
            gb_json_put_string(out, "reason", peer->why_not);
        gb_json_put_bool(out, "native_atomics", peer->native_atomics);
        gb_json_put_i64(out, "performance_rank", peer->rank);
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
}

/* null: the host backend does not have it, or it is not known. */
static void put_text(struct gb_json_writer *out, const char *key, const char *text) {
    gb_json_put_string(out, key, text[0] ? text : NULL);
}

static void render_device(struct gb_json_writer *out, const struct gb_api *api, const struct gb_device_rec *rec) {
    struct gb_health health;
    char capability[16];

    gb_json_open(out, NULL, '{');
    gb_json_put_i64(out, "index", rec->index);
    gb_json_put_string(out, "uuid", rec->uuid);
    gb_json_put_string(out, "name", rec->name);
    gb_json_put_u64(out, "total_bytes", rec->total_bytes);
    gb_json_put_u64(out, "free_bytes", rec->free_bytes);
    gb_json_put_u64(out, "pending_free_bytes", rec->pending_free_bytes);
    gb_json_put_bool(out, "integrated", rec->integrated);
    gb_json_put_bool(out, "cpu_access", rec->cpu_access);
    snprintf(capability, sizeof(capability), "%d.%d", rec->compute_major % 1000, rec->compute_minor % 1000);
    gb_json_put_string(out, "compute_capability", rec->compute_major > 0 ? capability : NULL);
    put_text(out, "driver", rec->driver);
    put_text(out, "cuda_driver", rec->cuda_driver);
    put_text(out, "cuda_runtime", rec->cuda_runtime);
    render_kinds(out, rec);
    render_capabilities(out, rec);
    render_peers(out, api, rec->index);
    if (gb_device_health(api->core, rec->index, &health, NULL) == 0)
        gb_render_health(out, &health);
    gb_json_close(out, '}');
}

/* --- handlers ----------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_device_list(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_device_rec rec;
    struct gb_json_writer out = {0};
    int i;

    gb_render_list_open(&out);
    for (i = 0; i < api->devices; i++) {
        if (gb_device_get(api->core, i, &rec, err) < 0) {
            gb_json_done(&out);
            return GB_STEP_ERROR;
        }
        render_device(&out, api, &rec);
    }
    gb_render_list_close(&out, NULL);
    return gb_reply_tagged(&out, 'd', response, err);
}

/* Reads the device of the path. */
static int read_device(const struct gb_http_request *request, int *ret, struct gb_error *err) {
    return gb_device_text(gb_api_of(request), request->param[0].s, request->param[0].len, ret, err) < 0 ? -1 : 0;
}

enum gb_step gb_api_device_get(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_device_rec rec;
    struct gb_json_writer out = {0};
    int device;

    if (read_device(request, &device, err) < 0 || gb_device_get(gb_api_of(request)->core, device, &rec, err) < 0)
        return GB_STEP_ERROR;
    render_device(&out, gb_api_of(request), &rec);
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_device_sync(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_call *call;
    int device;

    if (read_device(request, &device, err) < 0 || gb_body_no_fields(request, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_device_sync_call(gb_api_of(request)->core, device, call);
    return gb_async_end(request, response, gb_reply_nothing, gb_sync_deadline_ns(request), err);
}

/* --- selftest ----------------------------------------------------------------------------------------------------- */

/* POST /v1/devices/{device}/selftest: what copies, allocations and pinning cost on this machine. */

static const char *const directions[] = {
    [GB_COPY_TO_DEVICE] = "to_device", [GB_COPY_FROM_DEVICE] = "from_device", [GB_COPY_ON_DEVICE] = "on_device"};
static const char *const cases[GB_SELFTEST_CASES] = {"first", "again", "busy"};

/* With one digit after the point. What takes less than a microsecond is given to the nanosecond. */
static void put_us(struct gb_json_writer *out, const char *key, uint64_t ns) {
    gb_json_put_number(out, key, ns < 1000 ? (double)ns / 1000 : (double)((ns + 50) / 100) / 10);
}

/* What could not be measured says why. */
static void put_why(struct gb_json_writer *out, const char *why) {
    gb_json_put_untrusted(out, "reason", why, GB_SELFTEST_WHY - 1);
}

static void render_copy(struct gb_json_writer *out, const struct gb_selftest_copy *copy) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "kind", gb_kind_name(copy->kind));
    gb_json_put_string(out, "direction", directions[copy->direction]);
    if (copy->bytes > 0)
        gb_json_put_u64(out, "bytes", copy->bytes);
    if (copy->ns > 0) {
        put_us(out, "microseconds", copy->ns);
        gb_json_put_number(out, "gigabytes_per_s",
                           (double)(uint64_t)((double)copy->bytes / (double)copy->ns * 1000 + 0.5) / 1000);
    } else {
        put_why(out, copy->why);
    }
    gb_json_close(out, '}');
}

static void render_wait(struct gb_json_writer *out, const struct gb_selftest_wait *wait) {
    gb_json_open(out, "waiting", '{');
    if (wait->copied_ns > 0) {
        gb_json_put_u64(out, "earlier_bytes", wait->earlier_bytes);
        gb_json_put_u64(out, "bytes", wait->bytes);
        put_us(out, "alone_microseconds", wait->alone_ns);
        put_us(out, "behind_microseconds", wait->seen_ns);
        put_us(out, "waited_microseconds", wait->queued_ns);
        put_us(out, "copied_microseconds", wait->copied_ns);
    } else {
        put_why(out, wait->why);
    }
    gb_json_close(out, '}');
}

static void render_alloc(struct gb_json_writer *out, const struct gb_selftest_alloc *alloc) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "kind", gb_kind_name(alloc->kind));
    gb_json_put_string(out, "case", cases[alloc->when]);
    gb_json_put_u64(out, "bytes", alloc->bytes);
    if (alloc->alloc_ns > 0) {
        put_us(out, "allocate_microseconds", alloc->alloc_ns);
        put_us(out, "free_microseconds", alloc->free_ns);
    } else {
        put_why(out, alloc->why);
    }
    gb_json_close(out, '}');
}

static void render_pin(struct gb_json_writer *out, const struct gb_selftest_pin *pin) {
    gb_json_open(out, "pinning", '{');
    if (pin->pin_ns > 0) {
        gb_json_put_u64(out, "bytes", pin->bytes);
        put_us(out, "pin_microseconds", pin->pin_ns);
        put_us(out, "pin_microseconds_per_mib", (uint64_t)((double)pin->pin_ns * (1 << 20) / (double)pin->bytes));
        put_us(out, "unpin_microseconds", pin->unpin_ns);
    } else {
        put_why(out, pin->why);
    }
    gb_json_close(out, '}');
}

static enum gb_step reply_tested(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                 struct gb_error *err) {
    const struct gb_selftest_call *call = result;
    struct gb_json_writer out = {0};
    struct gb_device_rec rec;
    unsigned i;

    if (gb_device_get(gb_api_of(request)->core, call->device, &rec, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    gb_render_device_id(&out, "device", gb_api_of(request), call->device);
    gb_json_put_string(&out, "name", rec.name);
    gb_json_put_seconds(&out, "seconds", call->took_ns);
    gb_json_open(&out, "copies", '[');
    for (i = 0; i < call->copies; i++)
        render_copy(&out, &call->copy[i]);
    gb_json_close(&out, ']');
    render_wait(&out, &call->wait);
    gb_json_open(&out, "allocations", '[');
    for (i = 0; i < call->allocs; i++)
        render_alloc(&out, &call->alloc[i]);
    gb_json_close(&out, ']');
    render_pin(&out, &call->pin);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_device_selftest(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    struct gb_selftest_call *call;
    int device;

    if (read_device(request, &device, err) < 0 || gb_body_no_fields(request, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_device_selftest(gb_api_of(request)->core, device, call);
    return gb_async_end(request, response, reply_tested, gb_sync_deadline_ns(request), err);
}
