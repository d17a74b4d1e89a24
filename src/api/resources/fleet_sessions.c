/* Registered sessions: which there are, and where one is. */
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "api/list/link.h"
#include "api/middleware/redirect.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/query.h"
#include "api/resources/fleet_ask.h"
#include "api/resources/fleet_settle.h"
#include "api/route.h"

/* --- all ---------------------------------------------------------------------------------------------------------- */

static void render_entry(struct gb_json_writer *out, const struct gb_fleet_session *session) {
    gb_json_put_string(out, "name", session->name.s);
    gb_json_put_string(out, "node", session->node.s);
    gb_json_put_u64(out, "epoch", session->epoch);
    gb_json_put_string(out, "on_partition", gb_on_partition_word(session->on_partition));
    gb_json_put_raw(out, "labels", session->labels[0] != '\0' ? session->labels : "{}");
    gb_render_owned(out, session);
}

static enum gb_step reply_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    const struct gb_asking *asking = request->state;
    const struct gb_fleet_sessions *sessions = &asking->of.sessions;
    struct gb_json_writer out = {0};
    bool more;
    size_t i;

    gb_render_list_open(&out);
    for (i = 0; i < sessions->count; i++) {
        gb_json_open(&out, NULL, '{');
        render_entry(&out, &sessions->items[i]);
        gb_json_open(&out, "quota", '{');
        gb_json_put_limit(&out, "bytes", sessions->items[i].quota_bytes);
        gb_json_close(&out, '}');
        gb_json_close(&out, '}');
    }
    more = sessions->more && sessions->count > 0;
    return gb_list_reply(request, &out, more ? sessions->items[sessions->count - 1].name.s : NULL, response, err);
}

enum gb_step gb_api_fleet_sessions(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_name after = {""};
    struct gb_name prefix = {""};
    struct gb_name node = {""};
    unsigned n;
    struct gb_asking *asking;

    if (gb_query_name(request, "node", &node, err) < 0 || gb_query_name(request, "prefix", &prefix, err) < 0 ||
        gb_query_name(request, "cursor", &after, err) < 0 || gb_query_limit(request, &n, err) < 0 ||
        gb_fleet_needed(request, err) < 0)
        return GB_STEP_ERROR;
    if (after.s[0] && strncmp(after.s, prefix.s, strlen(prefix.s)) != 0) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the cursor is of a list with another prefix; begin without one");
        return GB_STEP_ERROR;
    }
    asking = gb_asking_begin(request, reply_list, err);
    if (!asking)
        return GB_STEP_ERROR;
    asking->kind = GB_ASKING_SESSIONS;
    asking->of.sessions.after = after;
    asking->of.sessions.prefix = prefix;
    asking->of.sessions.node = node;
    asking->of.sessions.limit = n;
    gb_fleet_list_sessions(asking->fleet, &asking->of.sessions);
    return gb_asking_wait(request, response, err);
}

/* --- where one is ------------------------------------------------------------------------------------------------- */

static enum gb_step reply_where(const struct gb_fleet_find *find, const char *base, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_json_writer out = {0};
    char url[GB_FLEET_URL_SIZE + GB_NAME_MAX + 16];

    gb_json_open(&out, NULL, '{');
    render_entry(&out, &find->session);
    if (base) {
        snprintf(url, sizeof(url), "%s/v1/sessions/%s", base, find->session.name.s);
        gb_json_put_untrusted(&out, "url", url, SIZE_MAX);
    } else {
        gb_json_put_null(&out, "url");
    }
    gb_json_put_bool(&out, "owner_alive", find->owner.alive);
    gb_json_put_u64(&out, "absent_s", find->absent_s);
    gb_json_put_bool(&out, "stale", find->stale);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step found(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_asking *asking = request->state;
    const struct gb_fleet_find *find = &asking->of.find;

    return reply_where(find, gb_fleet_url_on(&find->owner, gb_redirect_network(request)), response, err);
}

/* What is registered here, and not doubted, needs no directory. */
static bool is_here(const struct gb_http_request *request, const struct gb_name *name, struct gb_fleet_find *find) {
    struct gb_api *api = gb_api_of(request);

    find->owner.alive = true;
    return !gb_fleet_doubts(api->fleet, name->s) && gb_fleet_session(api, name, &find->session);
}

enum gb_step gb_api_fleet_session_get(struct gb_http_request *request, struct gb_http_response *response,
                                      struct gb_error *err) {
    struct gb_fleet_find here = {.stale = false};
    struct gb_asking *asking;
    struct gb_name name;

    if (gb_param_name(request, 0, "session name", &name, err) < 0 ||
        gb_api_permit(request, GB_SCOPE_VERIFY, name.s, err) < 0 || gb_fleet_needed(request, err) < 0)
        return GB_STEP_ERROR;
    if (is_here(request, &name, &here))
        return reply_where(&here, gb_fleet_own_url(gb_api_of(request)->fleet, gb_redirect_network(request)), response,
                           err);
    asking = gb_asking_begin(request, found, err);
    if (!asking)
        return GB_STEP_ERROR;
    if (gb_fleet_find(asking->fleet, &name, false, &asking->of.find))
        atomic_store(&asking->done, true);
    return gb_asking_wait(request, response, err);
}
