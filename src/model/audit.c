/* Records of the audit: their words, and queues of packed records. The owner's lock guards a queue. The core, the store
 * and the API call it. */
#include "model/audit.h"

#include <stdlib.h>
#include <string.h>

/* --- audit -------------------------------------------------------------------------------------------------------- */

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

/* --- audit queue -------------------------------------------------------------------------------------------------- */

/* The bytes of memory that an empty queue keeps. */
#define KEPT (64 * 1024)

#define COPIED (GB_AUDIT_TEXTS - GB_AUDIT_STATICS)

/* The copied texts follow, each with its NUL; a length of 0 stands for none. */
struct entry {
    uint32_t size; /* of all of it; a multiple of 8 */
    int status;
    int event;
    uint16_t len[COPIED];
    int64_t at_us;
    int64_t token_id;
    uint64_t bytes;
    uint64_t count;
    const char *fixed[GB_AUDIT_STATICS];
};

static bool make_room(struct gb_audit_queue *q, size_t bytes, size_t max) {
    size_t size = q->size ? q->size : 4096;
    char *bigger;

    if (q->used + bytes > max)
        return false;
    if (q->used + bytes <= q->size)
        return true;
    while (size < q->used + bytes)
        size *= 2;
    bigger = realloc(q->at, size);
    if (!bigger)
        return false;
    q->at = bigger;
    q->size = size;
    return true;
}

static void copy(char *to, const struct entry *entry, const char *const *texts) {
    int i;

    for (i = 0; i < COPIED; i++) {
        if (entry->len[i] == 0)
            continue;
        memcpy(to, texts[i], entry->len[i]);
        to[entry->len[i]] = '\0';
        to += entry->len[i] + 1u;
    }
}

bool gb_audit_queue_put(struct gb_audit_queue *q, const struct gb_audit_rec *rec, size_t max) {
    const char *const *texts = rec->text + GB_AUDIT_STATICS;
    size_t bytes = sizeof(struct entry);
    struct entry entry;
    int i;

    for (i = 0; i < COPIED; i++) {
        entry.len[i] = texts[i] ? (uint16_t)strnlen(texts[i], GB_AUDIT_TEXT_MAX) : 0;
        bytes += entry.len[i] + (entry.len[i] > 0);
    }
    bytes = (bytes + 7) & ~(size_t)7;
    if (!make_room(q, bytes, max))
        return false;
    entry.size = (uint32_t)bytes;
    entry.status = rec->status;
    entry.event = (int)rec->event;
    entry.at_us = rec->at_us;
    entry.token_id = rec->token_id;
    entry.bytes = rec->bytes;
    entry.count = rec->count;
    memcpy(entry.fixed, rec->text, sizeof(entry.fixed));
    memcpy(q->at + q->used, &entry, sizeof(entry));
    copy(q->at + q->used + sizeof(entry), &entry, texts);
    q->used += bytes;
    q->count++;
    return true;
}

bool gb_audit_queue_next(const struct gb_audit_queue *q, size_t *at, struct gb_audit_rec *ret) {
    struct entry entry;
    const char *text;
    int i;

    if (*at >= q->used)
        return false;
    memcpy(&entry, q->at + *at, sizeof(entry));
    text = q->at + *at + sizeof(entry);
    ret->id = 0;
    ret->at_us = entry.at_us;
    ret->event = (enum gb_audit_event)entry.event;
    ret->status = entry.status;
    ret->token_id = entry.token_id;
    ret->bytes = entry.bytes;
    ret->count = entry.count;
    memcpy(ret->text, entry.fixed, sizeof(entry.fixed));
    for (i = 0; i < COPIED; i++) {
        ret->text[GB_AUDIT_STATICS + i] = entry.len[i] > 0 ? text : NULL;
        text += entry.len[i] + (entry.len[i] > 0);
    }
    *at += entry.size;
    return true;
}

void gb_audit_queue_clear(struct gb_audit_queue *q) {
    if (q->size > KEPT)
        gb_audit_queue_done(q);
    q->used = q->count = 0;
}

void gb_audit_queue_done(struct gb_audit_queue *q) {
    free(q->at);
    *q = (struct gb_audit_queue){.at = NULL};
}
