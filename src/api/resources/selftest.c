/* POST /v1/devices/{device}/selftest: what copies, allocations and pinning cost on this machine. */
#include "api/context.h"
#include "api/middleware/async.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/device_param.h"
#include "api/request/wait.h"
#include "api/route.h"

static const char *const directions[] = {
    [GB_COPY_TO_DEVICE] = "to_device", [GB_COPY_FROM_DEVICE] = "from_device", [GB_COPY_ON_DEVICE] = "on_device"};
static const char *const cases[GB_SELFTEST_CASES] = {"first", "again", "busy"};

/* With one digit behind the point. */
/* What takes less than a microsecond is given to the nanosecond. */
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
    json_t *body;
    int device;

    if (gb_device_text(gb_api_of(request), request->param[0].s, request->param[0].len, &device, err) < 0 ||
        gb_body_object(request, "", true, &body, err) < 0)
        return GB_STEP_ERROR;
    json_decref(body);
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_device_selftest(gb_api_of(request)->core, device, call);
    return gb_async_end(request, response, reply_tested, gb_sync_deadline_ns(request), err);
}
