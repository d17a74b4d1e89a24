/* Tenants: sessions of the fleet whose quotas together have a limit. */
#include "api/context.h"
#include "api/middleware/async.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/json.h"
#include "api/request/query.h"
#include "api/resources/fleet_ask.h"
#include "api/route.h"

static void render(struct gb_json_writer *out, const struct gb_fleet_tenant *tenant) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "name", tenant->name.s);
    gb_json_put_limit(out, "limit_bytes", tenant->limit_bytes);
    gb_json_put_u64(out, "used_bytes", tenant->used_bytes);
    gb_json_put_u64(out, "sessions", tenant->sessions);
    gb_json_close(out, '}');
}

static enum gb_step reply_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    const struct gb_fleet_tenants *tenants = &((struct gb_asking *)request->state)->of.tenants;
    struct gb_json_writer out = {0};
    size_t i;

    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "items", '[');
    for (i = 0; i < tenants->count; i++)
        render(&out, &tenants->items[i]);
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step reply_one(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_json_writer out = {0};

    render(&out, &((struct gb_asking *)request->state)->of.tenants.items[0]);
    return gb_reply_json(&out, 200, response, err);
}

/* only: NULL: all. */
static enum gb_step list(struct gb_http_request *request, const struct gb_name *only, gb_http_handler *next,
                         struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, next, err);

    if (!asking)
        return GB_STEP_ERROR;
    asking->kind = GB_ASKING_TENANTS;
    if (only)
        asking->of.tenants.only = *only;
    gb_fleet_list_tenants(asking->fleet, &asking->of.tenants);
    return gb_asking_wait(request, response, err);
}

enum gb_step gb_api_fleet_tenants(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    return list(request, NULL, reply_list, response, err);
}

enum gb_step gb_api_fleet_tenant_get(struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err) {
    struct gb_name name;

    if (gb_param_name(request, 0, "tenant name", &name, err) < 0)
        return GB_STEP_ERROR;
    return list(request, &name, reply_one, response, err);
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

static enum gb_step set(struct gb_http_request *request, const struct gb_fleet_tenant_set *change,
                        gb_http_handler *next, struct gb_http_response *response, struct gb_error *err) {
    struct gb_asking *asking = gb_asking_begin(request, next, err);

    if (!asking)
        return GB_STEP_ERROR;
    asking->of.tenant.name = change->name;
    asking->of.tenant.limit_bytes = change->limit_bytes;
    asking->of.tenant.remove = change->remove;
    gb_fleet_set_tenant(asking->fleet, &asking->of.tenant);
    return gb_asking_wait(request, response, err);
}

static enum gb_step made(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_name name;

    if (gb_param_name(request, 0, "tenant name", &name, err) < 0)
        return GB_STEP_ERROR;
    return list(request, &name, reply_one, response, err);
}

static enum gb_step removed(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    return gb_reply_nothing(request, NULL, response, err);
}

/* null, and nothing: no limit. */
static int read_limit(const struct gb_http_request *request, uint64_t *ret, struct gb_error *err) {
    json_t *body;
    int r = 0;

    *ret = GB_UNLIMITED;
    if (gb_body_object(request, "limit_bytes", true, &body, err) < 0)
        return -1;
    if (json_object_get(body, "limit_bytes") && !json_is_null(json_object_get(body, "limit_bytes")))
        r = gb_json_u64(body, "limit_bytes", ret, err);
    json_decref(body);
    return r < 0 ? -1 : 0;
}

enum gb_step gb_api_fleet_tenant_put(struct gb_http_request *request, struct gb_http_response *response,
                                     struct gb_error *err) {
    struct gb_fleet_tenant_set change = {.remove = false};

    if (gb_param_name(request, 0, "tenant name", &change.name, err) < 0 ||
        read_limit(request, &change.limit_bytes, err) < 0)
        return GB_STEP_ERROR;
    return set(request, &change, made, response, err);
}

enum gb_step gb_api_fleet_tenant_delete(struct gb_http_request *request, struct gb_http_response *response,
                                        struct gb_error *err) {
    struct gb_fleet_tenant_set change = {.remove = true};

    if (gb_param_name(request, 0, "tenant name", &change.name, err) < 0)
        return GB_STEP_ERROR;
    return set(request, &change, removed, response, err);
}
