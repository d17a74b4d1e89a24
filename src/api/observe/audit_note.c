/* From an ended request to a record of the audit. Names, numbers and the route alone go into it: neither the target,
 * which has the query, nor a header or a body. */
#include <stdio.h>
#include <string.h>

#include "api/context.h"
#include "api/observe/audit.h"
#include "api/route.h"
#include "base/clock.h"

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
