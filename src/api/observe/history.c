#include "api/observe/history.h"

#include <math.h>
#include <stdlib.h>

#include "api/context.h"
#include "api/reply/reply_json.h"
#include "api/request/query.h"
#include "api/request/query_time.h"
#include "base/clock.h"

#define HOUR_US 3600000000LL

/* What the request waits for. */
struct wait {
    struct gb_history_call *call;
    enum gb_history_scope scope;
};

bool gb_history_wanted(const struct gb_http_request *request) {
    return gb_http_query(request, "since") || gb_http_query(request, "until") || gb_http_query(request, "step");
}

/* --- the question ------------------------------------------------------------------------------------------------- */

static int read_query(const struct gb_http_request *request, struct gb_history_query *query, struct gb_error *err) {
    int64_t now_us = gb_wall_us();
    int step;
    int since;

    query->until_us = now_us;
    if (gb_query_time(request, "until", now_us, &query->until_us, err) < 0)
        return -1;
    query->since_us = query->until_us > HOUR_US ? query->until_us - HOUR_US : 0;
    since = gb_query_time(request, "since", now_us, &query->since_us, err);
    step = since < 0 ? -1 : gb_query_u64(request, "step", &query->step_s, err);
    if (step < 0)
        return -1;
    if (step > 0 && query->step_s == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "step must be at least 1 second");
    if (query->step_s > 31536000)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "step must be at most 31536000 seconds, a year");
    if (query->since_us >= query->until_us)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "since must be before until%s",
                            gb_http_query(request, "until") ? "" : ", which is now where it is not given");
    return 0;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void render_point(struct gb_json_writer *out, const struct gb_history_plan *plan, enum gb_history_scope scope,
                         const struct gb_history_point *point) {
    double covered_s = point->counter[GB_COUNTER_covered_s];
    int i;

    gb_json_open(out, NULL, '{');
    gb_json_put_time(out, "at", point->at_us);
    gb_json_put_i64(out, "samples", point->samples);
    if (!isnan(covered_s))
        gb_json_put_number(out, "covered_s", covered_s);
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        const struct gb_history_span *span = &point->gauge[i];

        if (!gb_history_has(&gb_history_gauges[i], scope) || isnan(span->last))
            continue;
        gb_json_open(out, gb_history_gauges[i].name, '{');
        gb_json_put_number(out, "min", span->min);
        gb_json_put_number(out, "mean", span->mean);
        gb_json_put_number(out, "max", span->max);
        gb_json_put_number(out, "last", span->last);
        gb_json_close(out, '}');
    }
    for (i = 0; i < GB_HISTORY_COUNTERS; i++) {
        if (!gb_history_has(&gb_history_counters[i], scope) || isnan(point->counter[i]) || i == GB_COUNTER_covered_s)
            continue;
        gb_json_open(out, gb_history_counters[i].name, '{');
        gb_json_put_number(out, "delta", point->counter[i]);
        gb_json_put_number(out, "rate_per_s", point->counter[i] / (covered_s > 0 ? covered_s : (double)plan->step_s));
        gb_json_close(out, '}');
    }
    gb_json_close(out, '}');
}

static void render(struct gb_json_writer *out, uint64_t interval_s, enum gb_history_scope scope,
                   const struct gb_history_answer *answer) {
    char text[GB_RFC3339_SIZE];
    size_t i;

    gb_json_open(out, NULL, '{');
    gb_json_put_time(out, "since", answer->plan.since_us);
    gb_json_put_time(out, "until", answer->plan.until_us);
    gb_json_put_u64(out, "step_s", answer->plan.step_s);
    gb_json_put_string(out, "source", gb_history_level_name(answer->plan.level));
    gb_json_put_u64(out, "interval_s", interval_s);
    if (interval_s == 0)
        gb_json_put_string(out, "note", "no samples are taken: the daemon runs with --sample-interval 0");
    gb_json_open(out, "restarts", '[');
    for (i = 0; i < answer->restart_count; i++)
        gb_json_put_string(out, NULL, gb_rfc3339(answer->restarts[i], text));
    gb_json_close(out, ']');
    gb_json_open(out, "items", '[');
    for (i = 0; i < answer->count; i++)
        render_point(out, &answer->plan, scope, &answer->points[i]);
    gb_json_close(out, ']');
    gb_json_close(out, '}');
}

/* Replies with an entity tag made of the text, which stays while no sample comes. */
static enum gb_step send(const struct gb_api *api, const struct wait *wait, struct gb_http_response *response,
                         struct gb_error *err) {
    struct gb_json_writer out = {0};

    render(&out, gb_history_interval_s(api->core), wait->scope, &wait->call->answer);
    return gb_reply_tagged(&out, 'h', response, err);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct wait *wait = request->state;

    if (!atomic_load(&wait->call->finished)) {
        if (!request->timed_out)
            return GB_STEP_WAIT;
        gb_error_set(err, GB_ERR_TIMED_OUT, "the history was not read in the permitted time");
        return GB_STEP_ERROR;
    }
    if (wait->call->error.code == GB_OK)
        return send(gb_api_of(request), wait, response, err);
    *err = wait->call->error;
    return GB_STEP_ERROR;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static void wake(void *arg) {
    gb_http_wake(arg);
    gb_http_request_unref(arg);
}

static void wait_free(void *state) {
    struct wait *wait = state;

    gb_history_call_unref(wait->call);
    free(wait);
}

enum gb_step gb_history_reply(struct gb_http_request *request, const struct gb_history_key *key, struct gb_error *err) {
    struct gb_history_query query = {.key = *key};
    struct wait *wait;

    if (read_query(request, &query, err) < 0)
        return GB_STEP_ERROR;
    wait = calloc(1, sizeof(*wait));
    if (wait)
        wait->call = gb_history_call_new(wake, gb_http_request_ref(request));
    if (!wait || !wait->call) {
        if (wait)
            gb_http_request_unref(request);
        free(wait);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    wait->scope = key->scope;
    request->state = wait;
    request->state_free = wait_free;
    request->resume = resume;
    gb_history_ask(gb_api_of(request)->core, &query, wait->call);
    return GB_STEP_WAIT; /* the wake may have come already */
}
