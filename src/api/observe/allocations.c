/* /v1/allocations: allocations and frees of device memory, in the columns of RMM's logging_resource_adaptor or as
 * JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "api/context.h"
#include "api/observe/deferred_report.h"
#include "api/reply/render.h"
#include "api/request/media.h"
#include "api/request/query.h"
#include "api/route.h"

#define CHUNK 256

enum { SINCE, LIMIT };

static const char *action_name(enum gb_alloc_log_action action) {
    return action == GB_ALLOC_LOG_ALLOC ? "allocate" : action == GB_ALLOC_LOG_FREE ? "free" : "allocate failure";
}

/* If more entries are asked for than the limit, the newest are kept. */
static void pick(const struct gb_deferred_report *report, uint64_t *ret_from, uint64_t *ret_end) {
    gb_alloc_log_range(report->api->core, ret_from, ret_end);
    if (report->params[SINCE] >= *ret_from)
        *ret_from = report->params[SINCE] < *ret_end ? report->params[SINCE] + 1 : *ret_end;
    if (*ret_end - *ret_from > report->params[LIMIT])
        *ret_from = *ret_end - report->params[LIMIT];
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

/* The thread column has the session, because threads of the daemon mean nothing outside. */
static void write_line(FILE *out, const struct gb_alloc_log_event *e) {
    time_t seconds = (time_t)(e->at_us / 1000000);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    fprintf(out, "%" PRId64 ",%02d:%02d:%02d.%06d,%s,", e->session_id, tm.tm_hour, tm.tm_min, tm.tm_sec,
            (int)(e->at_us % 1000000), action_name(e->action));
    if (e->address == 0)
        fputs("(nil)", out);
    else
        fprintf(out, "0x%" PRIx64, e->address);
    fprintf(out, ",%" PRIu64 ",0x%" PRIx64 "\n", e->bytes, gb_alloc_log_stream(e->session_id, e->stream_id));
}

static int make_csv(struct gb_deferred_report *report, struct gb_error *err) {
    struct gb_alloc_log_event *chunk = malloc(CHUNK * sizeof(*chunk));
    FILE *out = open_memstream(&report->body, &report->len);
    uint64_t from;
    uint64_t end;
    unsigned n;
    unsigned i;
    int r = -1;

    (void)err;
    if (chunk && out) {
        pick(report, &from, &end);
        fputs("Thread,Time,Action,Pointer,Size,Stream\n", out);
        while ((n = gb_alloc_log_events(report->api->core, &from, end, chunk, CHUNK)) > 0) {
            for (i = 0; i < n; i++)
                write_line(out, &chunk[i]);
        }
        r = ferror(out) ? -1 : 0;
    }
    if (out && fclose(out) != 0)
        r = -1;
    free(chunk);
    return r;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void render_event(struct gb_json_writer *out, const struct gb_api *api, const struct gb_alloc_log_event *e) {
    char address[24];

    gb_json_open(out, NULL, '{');
    gb_json_put_u64(out, "id", e->number);
    gb_json_put_time(out, "at", e->at_us);
    gb_json_put_string(out, "action", action_name(e->action));
    snprintf(address, sizeof(address), "0x%" PRIx64, e->address);
    if (e->address > 0)
        gb_json_put_string(out, "pointer", address);
    else
        gb_json_put_null(out, "pointer");
    gb_json_put_u64(out, "bytes", e->bytes);
    gb_json_put_string(out, "kind", gb_kind_name(e->kind));
    gb_render_device_id(out, "device", api, e->device);
    gb_json_put_string(out, "session", e->session);
    gb_json_put_string(out, "buffer", e->buffer);
    gb_json_put_i64(out, "stream", e->stream_id);
    if (e->action == GB_ALLOC_LOG_FAILURE)
        gb_json_put_u64(out, "free_bytes", e->free_bytes);
    gb_json_close(out, '}');
}

static int make_json(struct gb_deferred_report *report, struct gb_error *err) {
    struct gb_alloc_log_event *chunk = malloc(CHUNK * sizeof(*chunk));
    struct gb_json_writer out = {0};
    uint64_t from;
    uint64_t end;
    unsigned n;
    unsigned i;

    (void)err;
    if (!chunk)
        return -1;
    pick(report, &from, &end);
    gb_json_open(&out, NULL, '{');
    gb_json_open(&out, "items", '[');
    while ((n = gb_alloc_log_events(report->api->core, &from, end, chunk, CHUNK)) > 0) {
        for (i = 0; i < n; i++)
            render_event(&out, report->api, &chunk[i]);
    }
    free(chunk);
    gb_json_close(&out, ']');
    gb_json_put_u64(&out, "last_id", end - 1);
    if (gb_alloc_log_room(report->api->core) == 0)
        gb_json_put_string(&out, "note", "no log is kept: the daemon runs with --allocation-log 0");
    gb_json_close(&out, '}');
    gb_json_end(&out);
    if (out.failed) {
        gb_json_done(&out);
        return -1;
    }
    report->body = out.s;
    report->len = out.used;
    return 0;
}

/* --- the handler -------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_allocation_list(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    bool json = gb_media_prefers(gb_http_header(request, "Accept"), "application/json", "text/csv");
    struct gb_deferred_report report = {.params[LIMIT] = GB_DEFERRED_REPORT_ENTRIES_MAX,
                                        .content_type =
                                            json ? "application/json" : "text/csv; charset=utf-8; header=present"};

    (void)response;
    if (gb_query_u64(request, "since", &report.params[SINCE], err) < 0 ||
        gb_query_u64(request, "limit", &report.params[LIMIT], err) < 0)
        return GB_STEP_ERROR;
    if (report.params[LIMIT] == 0) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "limit must be 1 or more; without it the newest %d are sent",
                     GB_DEFERRED_REPORT_ENTRIES_MAX);
        return GB_STEP_ERROR;
    }
    if (report.params[LIMIT] > GB_DEFERRED_REPORT_ENTRIES_MAX)
        report.params[LIMIT] = GB_DEFERRED_REPORT_ENTRIES_MAX;
    return gb_deferred_report_start(request, json ? make_json : make_csv, &report, err);
}
