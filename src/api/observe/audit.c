/* GET /v1/audit: the records, newest first. */
#include "api/observe/audit.h"

#include <string.h>

#include "api/context.h"
#include "api/observe/deferred_report.h"
#include "api/reply/render.h"
#include "api/request/query.h"
#include "api/request/query_time.h"
#include "api/route.h"
#include "base/clock.h"

/* gb_deferred_report.params and .names */
enum { BEFORE, SINCE, UNTIL, STATUS_MIN, STATUS_MAX, LIMIT };
enum { SESSION, TOKEN };

#define ANY_STATUS 1000

static const char *const mode_words[] = {
    [GB_AUDIT_OFF] = "off", [GB_AUDIT_CHANGES] = "changes", [GB_AUDIT_ALL] = "all"};

/* --- a page ------------------------------------------------------------------------------------------------------- */

struct page {
    struct gb_json_writer out;
    uint64_t left;
};

static int visit(void *arg, const struct gb_audit_rec *rec) {
    struct page *page = arg;

    if (page->left == 0 || gb_render_list_full(&page->out))
        return 1;
    page->left--;
    gb_audit_render(&page->out, rec);
    return 0;
}

/* cursor: of the next page, or "". */
static void end_page(struct gb_json_writer *out, struct gb_core *core, const char *cursor) {
    gb_json_close(out, ']');
    if (cursor[0] != '\0')
        gb_json_put_string(out, "next_cursor", cursor);
    else
        gb_json_put_null(out, "next_cursor");
    gb_json_put_string(out, "mode", mode_words[gb_audit_mode(core)]);
    gb_json_close(out, '}');
    gb_json_end(out);
}

static int make(struct gb_deferred_report *report, struct gb_error *err) {
    const uint64_t *params = report->params;
    const struct gb_audit_query query = {
        .before = (int64_t)params[BEFORE],
        .since_us = (int64_t)params[SINCE],
        .until_us = (int64_t)params[UNTIL],
        .session = report->names[SESSION].s[0] ? report->names[SESSION].s : NULL,
        .token = report->names[TOKEN].s[0] ? report->names[TOKEN].s : NULL,
        .any_status = params[STATUS_MIN] == ANY_STATUS,
        .status_min = (int)params[STATUS_MIN],
        .status_max = (int)params[STATUS_MAX],
    };
    struct page page = {.left = params[LIMIT]};
    int64_t next = 0;
    int r;

    gb_render_list_open(&page.out);
    r = gb_audit_read(report->api->core, &query, visit, &page, &next, err);
    if (r == 0 && next > 0)
        gb_cursor_text(next, report->next_cursor);
    if (r == 0)
        end_page(&page.out, report->api->core, report->next_cursor);
    if (r < 0 || page.out.failed) {
        gb_json_done(&page.out);
        return -1;
    }
    report->body = page.out.s;
    report->len = page.out.used;
    return 0;
}

/* --- the question ------------------------------------------------------------------------------------------------- */

/* "404", or "4xx" for all that begin so. */
static int read_status(const struct gb_http_request *request, uint64_t *params, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, "status");

    params[STATUS_MIN] = params[STATUS_MAX] = ANY_STATUS;
    if (!text)
        return 0;
    if (text->len == 3 && text->s[0] >= '1' && text->s[0] <= '5' && strcmp(text->s + 1, "xx") == 0) {
        params[STATUS_MIN] = (uint64_t)(text->s[0] - '0') * 100;
        params[STATUS_MAX] = params[STATUS_MIN] + 99;
        return 0;
    }
    if (gb_query_u64(request, "status", &params[STATUS_MIN], NULL) < 0 || params[STATUS_MIN] > 599 ||
        (params[STATUS_MIN] < 100 && params[STATUS_MIN] != 0))
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "status must be a number from 100 to 599, such as 403, or a class such as 4xx; 0 stands for "
            "connections that ended before the answer was out");
    params[STATUS_MAX] = params[STATUS_MIN];
    return 0;
}

static int read_times(const struct gb_http_request *request, uint64_t *params, struct gb_error *err) {
    int64_t now_us = gb_wall_us();
    int64_t since_us = 0;
    int64_t until_us = INT64_MAX;

    if (gb_query_time(request, "since", now_us, &since_us, err) < 0 ||
        gb_query_time(request, "until", now_us, &until_us, err) < 0)
        return -1;
    if (since_us >= until_us)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "since must be before until");
    params[SINCE] = since_us > 0 ? (uint64_t)since_us : 0;
    params[UNTIL] = until_us > 0 ? (uint64_t)until_us : 0;
    return 0;
}

enum gb_step gb_api_audit_list(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_deferred_report report = {.content_type = "application/json"};
    struct gb_page page;

    (void)response;
    if (gb_page_read(request, &page, err) < 0 || read_times(request, report.params, err) < 0 ||
        read_status(request, report.params, err) < 0 ||
        gb_query_name(request, "session", &report.names[SESSION], err) < 0 ||
        gb_query_name(request, "token", &report.names[TOKEN], err) < 0)
        return GB_STEP_ERROR;
    report.params[BEFORE] = (uint64_t)page.after;
    report.params[LIMIT] = page.limit;
    return gb_deferred_report_start(request, make, &report, err);
}
