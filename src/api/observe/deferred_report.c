#include "api/observe/deferred_report.h"

#include <stdlib.h>

#include "api/list/link.h"
#include "api/reply/deferred.h"
#include "base/container.h"

struct job {
    struct gb_deferred deferred;
    gb_deferred_report_make *make;
    struct gb_deferred_report report;
};

static struct job *job_of(struct gb_deferred *deferred) {
    return gb_container_of(deferred, struct job, deferred);
}

static int make(struct gb_deferred *deferred, struct gb_error *err) {
    struct job *job = job_of(deferred);

    return job->make(&job->report, err);
}

static void release(struct gb_deferred *deferred) {
    struct job *job = job_of(deferred);

    atomic_fetch_sub(&job->report.api->reports, 1);
    free(job->report.body);
    free(job);
}

static enum gb_step reply(struct gb_deferred *deferred, struct gb_http_request *request,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_deferred_report *report = &job_of(deferred)->report;

    gb_http_response_take(response, report->body, report->len);
    report->body = NULL;
    if (report->next_cursor[0] != '\0' && gb_list_link(request, "cursor", report->next_cursor, response, err) < 0)
        return GB_STEP_ERROR;
    if (gb_http_response_header(response, err, "Content-Type", "%s", report->content_type) < 0 ||
        gb_http_response_header(response, err, "Cache-Control", "no-store") < 0 ||
        gb_http_response_header(response, err, "Vary", "Accept") < 0)
        return GB_STEP_ERROR;
    return GB_STEP_REPLY;
}

enum gb_step gb_deferred_report_start(struct gb_http_request *request, gb_deferred_report_make *makes,
                                      const struct gb_deferred_report *params, struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct job *job = NULL;

    if (atomic_fetch_add(&api->reports, 1) >= GB_DEFERRED_REPORTS_MAX)
        gb_error_set(err, GB_ERR_SATURATED, "%d answers of this kind are being made; try again later",
                     GB_DEFERRED_REPORTS_MAX);
    else if (!(job = malloc(sizeof(*job))))
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    if (!job) {
        atomic_fetch_sub(&api->reports, 1);
        return GB_STEP_ERROR;
    }
    *job =
        (struct job){.deferred = {.make = make, .reply = reply, .release = release}, .make = makes, .report = *params};
    job->report.api = api;
    return gb_deferred_start(request, &job->deferred);
}
