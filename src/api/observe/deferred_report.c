#include "api/observe/deferred_report.h"

#include <stdlib.h>

#include "api/context.h"
#include "api/list/link.h"
#include "base/container.h"

/* One reference is the request's, one the work's; the last one frees. */
struct job {
    atomic_int refs;
    atomic_bool finished; /* the members below may be read */
    struct gb_core_task work;
    struct gb_http_request *request; /* a reference, until the work has woken it */
    gb_deferred_report_make *make;
    struct gb_deferred_report report;
    struct gb_error error;
};

static void unref(void *arg) {
    struct job *job = arg;

    if (atomic_fetch_sub(&job->refs, 1) != 1)
        return;
    free(job->report.body);
    free(job);
}

static void run(struct gb_core_task *work) {
    struct job *job = gb_container_of(work, struct job, work);
    struct gb_http_request *request = job->request;

    /* The request is over. */
    if (atomic_load(&job->refs) > 1 && job->make(&job->report, &job->error) < 0 && job->error.code == GB_OK)
        gb_error_set(&job->error, GB_ERR_SATURATED, "no memory for the reply; try again later");
    atomic_fetch_sub(&job->report.api->reports, 1);
    atomic_store(&job->finished, true);
    gb_http_wake(request);
    gb_http_request_unref(request);
    unref(job);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct job *job = request->state;

    if (!atomic_load(&job->finished)) {
        if (!request->timed_out)
            return GB_STEP_WAIT;
        gb_error_set(err, GB_ERR_TIMED_OUT, "the answer was not ready in the permitted time");
        return GB_STEP_ERROR;
    }
    if (job->error.code != GB_OK) {
        *err = job->error;
        return GB_STEP_ERROR;
    }
    gb_http_response_take(response, job->report.body, job->report.len);
    job->report.body = NULL;
    if (job->report.next_cursor[0] != '\0' &&
        gb_list_link(request, "cursor", job->report.next_cursor, response, err) < 0)
        return GB_STEP_ERROR;
    if (gb_http_response_header(response, err, "Content-Type", "%s", job->report.content_type) < 0 ||
        gb_http_response_header(response, err, "Cache-Control", "no-store") < 0 ||
        gb_http_response_header(response, err, "Vary", "Accept") < 0)
        return GB_STEP_ERROR;
    return GB_STEP_REPLY;
}

enum gb_step gb_deferred_report_start(struct gb_http_request *request, struct gb_http_response *response,
                                      gb_deferred_report_make *make, const struct gb_deferred_report *params,
                                      struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct job *job;

    (void)response;
    if (atomic_fetch_add(&api->reports, 1) >= GB_DEFERRED_REPORTS_MAX) {
        atomic_fetch_sub(&api->reports, 1);
        gb_error_set(err, GB_ERR_SATURATED, "%d answers of this kind are being made; try again later",
                     GB_DEFERRED_REPORTS_MAX);
        return GB_STEP_ERROR;
    }
    job = calloc(1, sizeof(*job));
    if (!job) {
        atomic_fetch_sub(&api->reports, 1);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    atomic_init(&job->refs, 2);
    job->report = *params;
    job->report.api = api;
    job->make = make;
    job->work.run = run;
    job->request = gb_http_request_ref(request);
    request->state = job;
    request->state_free = unref;
    request->resume = resume;
    gb_core_run_task(api->core, &job->work);
    return GB_STEP_WAIT;
}
