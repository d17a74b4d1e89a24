/* The audit of requests: which record an ended request makes, and GET /v1/audit. A record has names and numbers alone.
 * The server reports each ended request; the store writes the records later. */
#include <stdio.h>
#include <string.h>

#include "api/context.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "base/clock.h"

/* --- records ------------------------------------------------------------------------------------------------------ */

/* From an ended request to a record of the audit. Names, numbers and the route alone go into it: neither the target,
 * which has the query, nor a header or a body. */

/* What the texts of a record are made of. */
struct note {
    char address[GB_HTTP_ADDRESS_SIZE];
    struct gb_name session;
    struct gb_name object;
};

static bool refused(enum gb_code code) {
    return code == GB_ERR_UNAUTHENTICATED || code == GB_ERR_FORBIDDEN;
}

/* A method that no route has changes nothing. */
static bool is_safe(const struct gb_http_request *request) {
    return request->method >= GB_HTTP_METHOD_COUNT || gb_http_is_safe(request->method);
}

/* Whether it changes nothing, however it ends. */
static bool reads(const struct gb_http_request *request) {
    return is_safe(request) || !request->route || gb_route_reads(gb_route_of(request));
}

/* A write in place whose body breaks off, or has another digest, is answered 4xx and has changed bytes. */
static bool may_be_partial(const struct gb_http_request *request, const struct gb_http_end *end) {
    return request->route->body == GB_BODY_STREAM && end->received > 0;
}

/* It has changed nothing, and the client can have it again as often as it likes. */
static bool repeatable(struct gb_core *core, const struct gb_http_request *request, const struct gb_http_end *end) {
    if (refused(end->code) || end->code == GB_ERR_TOO_MANY_REQUESTS || reads(request))
        return true;
    if (end->code == GB_OK || !gb_tokens_required(core))
        return false;
    return request->by.token == 0 || (end->status >= 400 && end->status < 500 && !may_be_partial(request, end));
}

static bool wanted(struct gb_core *core, const struct gb_http_request *request, enum gb_code code) {
    switch (gb_audit_mode(core)) {
    case GB_AUDIT_ALL:
        return true;
    case GB_AUDIT_CHANGES:
        return refused(code) ||
               (!is_safe(request) && (!request->route || !reads(request) || code == GB_ERR_TOO_MANY_REQUESTS));
    default:
        return false;
    }
}

/* A text that is no name is left out: it names nothing that there could be. */
static void copy_name(struct gb_name *to, const char *text, size_t len) {
    static const char safe[] = "-._";
    size_t i;

    to->s[0] = '\0';
    if (len > GB_NAME_MAX)
        return;
    for (i = 0; i < len; i++) {
        char c = text[i];

        if (!((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c != '\0' && strchr(safe, c))))
            return;
    }
    memcpy(to->s, text, len);
    to->s[len] = '\0';
}

static void copy_param(struct gb_name *to, const struct gb_http_request *request, unsigned n) {
    const struct gb_http_text *param = &request->param[n];

    if (param->s)
        copy_name(to, param->s, param->len);
}

/* What was made has its name in the body, and the reply's Location says it. */
static void copy_made(struct note *note, const struct gb_http_response *response, bool session) {
    const char *at = NULL;
    unsigned i;

    for (i = 0; i < response->headers && !at; i++)
        at = strcmp(response->header[i].name, "Location") == 0 ? strrchr(response->header[i].value, '/') : NULL;
    if (at)
        copy_name(session ? &note->session : &note->object, at + 1, strlen(at + 1));
}

static void write_names(struct note *note, const struct gb_http_request *request, const struct gb_http_end *end) {
    bool in_session = gb_route_of(request)->target >= GB_TARGET_SESSION;

    if (in_session)
        copy_param(&note->session, request, 0);
    copy_param(&note->object, request, in_session ? 1 : 0);
    if (request->method == GB_HTTP_POST && end->status == 201 && !note->object.s[0])
        copy_made(note, end->response, !in_session);
}

static const char *or_none(const char *text) {
    return text[0] ? text : NULL;
}

void gb_api_audit_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end) {
    struct gb_core *core = ((struct gb_api *)app)->core;
    struct gb_audit_rec rec;
    struct note note;

    if (!wanted(core, request, end->code))
        return;
    note.session.s[0] = note.object.s[0] = '\0';
    gb_http_client_text(request, end->peer, note.address);
    if (request->route)
        write_names(&note, request, end);
    rec = (struct gb_audit_rec){.at_us = gb_wall_us(),
                                .event = GB_AUDIT_REQUEST,
                                .status = end->status,
                                .token_id = request->by.token,
                                .bytes = gb_http_is_safe(request->method) ? end->sent : end->received};
    rec.text[GB_AUDIT_METHOD] = request->method < GB_HTTP_METHOD_COUNT ? gb_http_method_name(request->method) : NULL;
    rec.text[GB_AUDIT_ROUTE] = request->route ? request->route->path : NULL;
    rec.text[GB_AUDIT_ERROR] = end->code != GB_OK ? gb_code_slug(end->code) : NULL;
    rec.text[GB_AUDIT_REQUEST_ID] = request->id;
    rec.text[GB_AUDIT_ADDRESS] = or_none(note.address);
    rec.text[GB_AUDIT_TOKEN] = or_none(request->by.name.s);
    rec.text[GB_AUDIT_CERTIFICATE] = request->certificate ? gb_http_certificate_text(request->certificate) : NULL;
    rec.text[GB_AUDIT_SESSION] = or_none(note.session.s);
    rec.text[GB_AUDIT_OBJECT] = or_none(note.object.s);
    if (repeatable(core, request, end))
        gb_audit_note_refusal(core, &rec);
    else
        gb_audit_note(core, &rec);
}

/* --- GET /v1/audit ------------------------------------------------------------------------------------------------ */

/* GET /v1/audit: the records, newest first. */

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
