/* Requests about copies of sealed buffers: which copies this node keeps, which nodes keep copies of a session, and the
 * reports of holders to the owner. fleet/replica does the work. */
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "fleet/replica/replica.h"

/* --- what this node keeps ----------------------------------------------------------------------------------------- */

static void render_state(struct gb_json_writer *out, bool current, uint64_t buffers, uint64_t bytes,
                         const char *problem) {
    gb_json_put_bool(out, "current", current);
    gb_json_put_u64(out, "buffers", buffers);
    gb_json_put_u64(out, "bytes", bytes);
    if (problem[0] != '\0')
        gb_json_put_untrusted(out, "problem", problem, SIZE_MAX);
    else
        gb_json_put_null(out, "problem");
}

enum gb_step gb_api_fleet_copies(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    struct gb_replica_copies *copies;
    struct gb_json_writer out = {0};
    struct gb_replica_stat stat;
    size_t count;
    size_t i;

    if (gb_fleet_needed(request, err) < 0)
        return GB_STEP_ERROR;
    gb_replicas_stat(gb_api_of(request)->replicas, &stat);
    count = gb_replicas_list(gb_api_of(request)->replicas, &copies);
    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "max_bytes", stat.bytes_max);
    gb_json_put_u64(&out, "bytes", stat.bytes);
    gb_json_open(&out, "items", '[');
    for (i = 0; i < count; i++) {
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "session", copies[i].session.s);
        gb_json_put_string(&out, "owner", copies[i].owner.s);
        if (copies[i].stage.s[0] != '\0')
            gb_json_put_string(&out, "local", copies[i].stage.s);
        else
            gb_json_put_null(&out, "local");
        render_state(&out, copies[i].current, copies[i].buffers, copies[i].bytes, copies[i].problem);
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    free(copies);
    return gb_reply_json(&out, 200, response, err);
}

/* An owner notifies this node. Only the directory says which sessions to keep. */
enum gb_step gb_api_fleet_copies_wanted(struct gb_http_request *request, struct gb_http_response *response,
                                        struct gb_error *err) {
    struct gb_name session = {""};
    struct gb_json_writer out = {0};
    json_t *body;
    int r;

    if (gb_body_object(request, "session", false, &body, err) < 0)
        return GB_STEP_ERROR;
    r = gb_json_name(body, "session", &session, err);
    json_decref(body);
    if (r == 0)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'session' is needed: of which there are copies to keep");
    if (r <= 0 || gb_fleet_needed(request, err) < 0 ||
        gb_replicas_want(gb_api_of(request)->replicas, &session, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "session", session.s);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* --- who keeps what ----------------------------------------------------------------------------------------------- */

enum gb_step gb_api_session_copies(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_replica_holder holders[GB_FLEET_HOLDERS_MAX];
    struct gb_api *api = gb_api_of(request);
    struct gb_json_writer out = {0};
    struct gb_session_view view;
    struct gb_name name;
    size_t count;
    size_t i;

    if (gb_param_name(request, 0, "session name", &name, err) < 0 || gb_session_get(api->core, &name, &view, err) < 0)
        return GB_STEP_ERROR;
    count = api->replicas ? gb_replicas_holders(api->replicas, &name, holders) : 0;
    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "replicas", view.rec.replicas);
    gb_json_open(&out, "items", '[');
    for (i = 0; i < count; i++) {
        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "node", holders[i].node.s);
        render_state(&out, holders[i].current, holders[i].buffers, holders[i].bytes, holders[i].problem);
        gb_json_close(&out, '}');
    }
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    gb_session_rec_done(&view.rec);
    return gb_reply_json(&out, 200, response, err);
}

/* --- a holder and its owner --------------------------------------------------------------------------------------- */

struct saying {
    struct gb_name session;
    const char *step;
    struct gb_name node;
    uint64_t number;
    uint64_t edition;
    uint64_t buffers;
    uint64_t bytes;
    const char *problem;
};

static int read_saying(const json_t *body, struct saying *q, struct gb_error *err) {
    q->step = q->problem = "";
    if (gb_json_string(body, "step", &q->step, err) < 0 || gb_json_name(body, "node", &q->node, err) < 0 ||
        gb_json_u64(body, "number", &q->number, err) < 0 || gb_json_u64(body, "edition", &q->edition, err) < 0 ||
        gb_json_u64(body, "buffers", &q->buffers, err) < 0 || gb_json_u64(body, "bytes", &q->bytes, err) < 0 ||
        gb_json_string(body, "problem", &q->problem, err) < 0)
        return -1;
    if (strcmp(q->step, "begin") != 0 && strcmp(q->step, "done") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'step' is begin or done");
    if (q->node.s[0] != '\0' && json_object_get(body, "number"))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the fields 'node' and 'number' are needed: which holder it is");
}

static int say(struct gb_http_request *request, const struct saying *q, uint64_t *ret_edition, struct gb_error *err) {
    struct gb_replicas *replicas = gb_api_of(request)->replicas;

    if (gb_fleet_needed(request, err) < 0)
        return -1;
    *ret_edition = q->edition;
    if (q->step[0] == 'b')
        return gb_replicas_begin(replicas, &q->session, &q->node, q->number, ret_edition, err);
    return gb_replicas_done(replicas, &q->session, &q->node, q->number, q->edition, q->buffers, q->bytes, q->problem,
                            err);
}

enum gb_step gb_api_fleet_session_copies(struct gb_http_request *request, struct gb_http_response *response,
                                         struct gb_error *err) {
    struct gb_json_writer out = {0};
    struct saying q = {.step = ""};
    uint64_t edition = 0;
    json_t *body;
    int r;

    if (gb_param_name(request, 0, "session name", &q.session, err) < 0 ||
        gb_body_object(request, "step node number edition buffers bytes problem", false, &body, err) < 0)
        return GB_STEP_ERROR;
    r = read_saying(body, &q, err);
    if (r == 0)
        r = say(request, &q, &edition, err);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "edition", edition);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}
