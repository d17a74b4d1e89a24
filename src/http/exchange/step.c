#include "http/exchange/step.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/exchange/client.h"
#include "http/exchange/server_state.h"
#include "http/message/body_buffer.h"
#include "http/message/response.h"

/* Most clients send a small body right behind its head. */
#define REST_NS GB_NS_PER_S

void gb_exchange_fail(struct gb_exchange *ex, const struct gb_error *err) {
    const struct gb_http_server_config *config = &ex->server->config;

    ex->err = *err;
    gb_response_drop_listener(&ex->resp);
    if (config->explain)
        config->explain(config->app, &ex->req, &ex->err, &ex->resp);
    gb_exchange_explain(ex);
    gb_http_problem(&ex->resp, &ex->req, &ex->err);
    ex->phase = GB_PHASE_REPLY;
}

void gb_exchange_answer(struct gb_exchange *ex) {
    gb_exchange_advertise(ex);
    ex->phase = GB_PHASE_REPLY;
}

/* A small source is collected, so that libmicrohttpd can send it with keep-alive. HEAD never starts a source. */
static bool wants_gathering(const struct gb_exchange *ex) {
    return ex->resp.source && ex->req.method != GB_HTTP_HEAD && ex->resp.source_len > 0 &&
           ex->resp.source_len < ex->server->config.takeover_bytes;
}

static void settle(struct gb_exchange *ex, enum gb_step step, struct gb_error *err) {
    uint64_t longest;

    switch (step) {
    case GB_STEP_REPLY:
        gb_exchange_advertise(ex);
        ex->phase = wants_gathering(ex) ? GB_PHASE_GATHER : GB_PHASE_REPLY;
        return;
    case GB_STEP_WAIT:
        if (ex->req.timed_out || !ex->req.resume) {
            gb_error_set(err, GB_ERR_TIMED_OUT, "the work did not finish in the permitted time");
            break;
        }
        if (ex->req.park && gb_exchange_may_wait(ex, err) < 0)
            break;
        longest = gb_clock_ns() + ex->server->config.wait_max_s * GB_NS_PER_S;
        if (ex->req.deadline_ns == 0 || ex->req.deadline_ns > longest)
            ex->req.deadline_ns = longest;
        ex->phase = GB_PHASE_WAIT;
        return;
    case GB_STEP_BODY:
        if (ex->req.sink && ex->phase == GB_PHASE_HEAD) {
            ex->phase = GB_PHASE_BODY;
            return;
        }
        gb_error_set(err, GB_ERR_INTERNAL, "the handler asked for a body at the wrong time");
        break;
    case GB_STEP_ERROR:
        break;
    }
    gb_error_set(err, GB_ERR_INTERNAL, "the handler failed without an error");
    gb_exchange_fail(ex, err);
}

static enum gb_step end_sink(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    return request->sink->end(request->sink, request, response, err);
}

void gb_exchange_step(struct gb_exchange *ex, gb_http_handler *handler) {
    const struct gb_http_server_config *config = &ex->server->config;
    struct gb_error err = GB_ERROR_INIT;
    enum gb_step step;

    if (ex->req.sink && ex->phase == GB_PHASE_BODY) {
        if (ex->req.route->body == GB_BODY_JSON || ex->req.route->body == GB_BODY_LIST)
            gb_body_buffer_end(ex->req.sink, &ex->req);
        else
            handler = end_sink;
    }
    step = config->around ? config->around(handler, &ex->req, &ex->resp, &err) : handler(&ex->req, &ex->resp, &err);
    settle(ex, step, &err);
}

int gb_exchange_feed(struct gb_exchange *ex, const char *data, size_t n, size_t *ret_taken) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_http_sink *sink = ex->req.sink;
    size_t taken = 0;
    void *room;
    size_t size;
    int r = 1;

    while (taken < n && (r = sink->room(sink, &room, &size, &err)) > 0) {
        if (size > n - taken)
            size = n - taken;
        memcpy(room, data + taken, size);
        taken += size;
        ex->body_received += size;
        if (sink->fill(sink, size, &err) < 0) {
            r = -1;
            break;
        }
    }
    *ret_taken = taken;
    if (taken > 0)
        ex->moved_ns = gb_clock_ns();
    gb_exchange_room(ex, r != 0);
    if (r < 0) {
        gb_exchange_fail(ex, &err);
        return -1;
    }
    return 0;
}

bool gb_exchange_body_whole(const struct gb_exchange *ex) {
    if (ex->req.chunked)
        return ex->framing.state == GB_CHUNKED_DONE;
    return ex->body_received >= ex->req.content_length;
}

bool gb_exchange_gather(struct gb_exchange *ex) {
    struct gb_http_source *source = ex->resp.source;
    size_t total = (size_t)ex->resp.source_len;
    struct gb_error err = GB_ERROR_INIT;
    const void *at;
    size_t n;
    int r = 1;

    if (!ex->gathered)
        ex->gathered = malloc(total);
    if (!ex->gathered) {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for a reply of %zu bytes; try again later", total);
        r = -1;
    }
    while (r > 0 && ex->gathered_len < total && (r = source->next(source, &at, &n, &err)) > 0) {
        if (n > total - ex->gathered_len)
            n = total - ex->gathered_len;
        memcpy(ex->gathered + ex->gathered_len, at, n);
        ex->gathered_len += n;
        source->sent(source, n);
    }
    if (r == 0)
        return false;
    source->free(source, r > 0);
    ex->resp.source = NULL;
    if (r < 0) {
        gb_http_response_done(&ex->resp);
        gb_exchange_fail(ex, &err);
        return true;
    }
    gb_http_response_take(&ex->resp, ex->gathered, total);
    ex->gathered = NULL;
    ex->phase = GB_PHASE_REPLY;
    return true;
}

void gb_exchange_room(struct gb_exchange *ex, bool has_room) {
    if (has_room == (ex->blocked_ns == 0))
        return;
    if (!has_room) {
        ex->blocked_ns = gb_clock_ns();
        return;
    }
    ex->moved_ns = gb_clock_ns();
    ex->excused_ns += ex->moved_ns - ex->blocked_ns;
    ex->blocked_ns = 0;
}

static uint64_t last_moved_ns(const struct gb_exchange *ex) {
    return ex->moved_ns ? ex->moved_ns : ex->req.started_ns;
}

bool gb_exchange_stalled(const struct gb_exchange *ex, uint64_t now_ns, struct gb_error *err) {
    const struct gb_http_server_config *config = &ex->server->config;
    uint64_t patience_ns = config->stall_timeout_s * GB_NS_PER_S;
    uint64_t elapsed_ns = now_ns - ex->req.started_ns - ex->excused_ns;
    uint64_t moved_ns = last_moved_ns(ex);

    if (patience_ns == 0 || elapsed_ns < patience_ns || ex->blocked_ns != 0)
        return false;
    if (now_ns > moved_ns && now_ns - moved_ns >= patience_ns) {
        gb_error_set(err, GB_ERR_REQUEST_TIMEOUT, "no byte of the body came for %u seconds, after %llu bytes",
                     config->stall_timeout_s, (unsigned long long)ex->body_received);
        return true;
    }
    if (ex->body_received / ((double)elapsed_ns / GB_NS_PER_S) < (double)config->min_rate_bytes_s) {
        gb_error_set(err, GB_ERR_REQUEST_TIMEOUT,
                     "the body came at less than %llu bytes a second: %llu bytes in %.0f seconds",
                     (unsigned long long)config->min_rate_bytes_s, (unsigned long long)ex->body_received,
                     (double)elapsed_ns / GB_NS_PER_S);
        return true;
    }
    return false;
}

bool gb_exchange_rest_late(const struct gb_exchange *ex, uint64_t now_ns) {
    uint64_t moved_ns = last_moved_ns(ex);

    return (now_ns > moved_ns && now_ns - moved_ns >= REST_NS) || gb_exchange_stalled(ex, now_ns, NULL);
}
