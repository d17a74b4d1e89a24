#include "model/audit.h"

#include <string.h>

static const char *const words[] = {
#define GB_AUDIT_EVENT(name, word) word,
#include "model/audit_events.def"
#undef GB_AUDIT_EVENT
};

static const char *const names[] = {
    [GB_AUDIT_METHOD] = "method",   [GB_AUDIT_ROUTE] = "route",
    [GB_AUDIT_ERROR] = "code",      [GB_AUDIT_REQUEST_ID] = "request_id",
    [GB_AUDIT_ADDRESS] = "address", [GB_AUDIT_TOKEN] = "token",
    [GB_AUDIT_SESSION] = "session", [GB_AUDIT_CERTIFICATE] = "certificate",
    [GB_AUDIT_OBJECT] = "object",
};

const char *gb_audit_event_word(enum gb_audit_event event) {
    return event < GB_AUDIT_EVENTS ? words[event] : "unknown";
}

enum gb_audit_event gb_audit_event_of(const char *word) {
    int event = 0;

    while (event < GB_AUDIT_EVENTS && strcmp(words[event], word) != 0)
        event++;
    return (enum gb_audit_event)event;
}

const char *gb_audit_text_name(enum gb_audit_text text) {
    return names[text];
}

void gb_audit_render(struct gb_json_writer *out, const struct gb_audit_rec *rec) {
    bool request = rec->event == GB_AUDIT_REQUEST;
    int i;

    gb_json_open(out, NULL, '{');
    if (rec->id > 0)
        gb_json_put_i64(out, "id", rec->id);
    gb_json_put_time(out, "at", rec->at_us);
    gb_json_put_string(out, "event", gb_audit_event_word(rec->event));
    for (i = 0; i < GB_AUDIT_TEXTS; i++) {
        if (rec->text[i])
            gb_json_put_untrusted(out, names[i], rec->text[i], GB_AUDIT_TEXT_MAX);
    }
    if (rec->token_id > 0)
        gb_json_put_i64(out, "token_id", rec->token_id);
    if (request)
        gb_json_put_i64(out, "status", rec->status);
    if (request)
        gb_json_put_u64(out, "bytes", rec->bytes);
    if (rec->count > 0)
        gb_json_put_u64(out, "count", rec->count);
    gb_json_close(out, '}');
}
