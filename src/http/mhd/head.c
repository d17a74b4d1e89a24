/* libmicrohttpd 0.9.75 reads leniently: a folded line goes to the end of the field's name, a NUL byte ends a name, a
 * value or a line, a bare LF ends a line. A proxy in front may read the same bytes otherwise, and then the two disagree
 * on the end of the request. In libmicrohttpd's buffer the lines follow each other, with two NULs in place of CR LF, so
 * that anything else leaves a gap.
 *
 * Bytes that libmicrohttpd makes NULs as well leave none: a NUL in the place of a line end's CR; behind the last field,
 * the colon of a field without a name, which libmicrohttpd takes for the empty line. No proxy forwards such bytes: each
 * writes its own line ends. */
#include "http/mhd/head.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "http/message/fields.h"
#include "http/mhd/loop.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* The colon has become a NUL. */
bool gb_head_line(struct gb_head *head, const char *name, size_t name_len, const char *value, size_t value_len) {
    const char *blank = name + name_len + 1;

    /* Later releases refuse such headers themselves, and have another layout. */
    if (!head->at)
        return true;
    if (name != head->at || !value || value < blank)
        return false;
    while (blank < value && is_blank(*blank))
        blank++;
    head->at = value + value_len + 2;
    return blank == value;
}

/* "GET /x HTTP/1.1": the blanks have become NULs. */
bool gb_head_request_line(struct gb_head *head, const struct gb_exchange *ex, const char *method, const char *url,
                          const char *version) {
    const struct gb_http_text *target = &ex->req.target; /* as received: the query has been cut from url */
    const char *at;

    *head = (struct gb_head){.begin = method, .at = NULL};
    if (!ex->info->loop->reads_leniently)
        return true;
    for (at = method; gb_field_is_token((unsigned char)*at); at++)
        ;
    head->at = version + strlen(version) + 2;
    return *at == '\0' && url == at + 1 && version == url + target->len + 1 && !memchr(target->s, ' ', target->len);
}

bool gb_head_end(const struct gb_head *head, const struct gb_exchange *ex) {
    const union MHD_ConnectionInfo *header = MHD_get_connection_info(ex->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

    if (!head->at)
        return true;
    /* A byte behind a NUL in the last value would lie there. */
    return header && head->at + 2 == head->begin + header->header_size && memcmp(head->at - 2, "\0\0\0", 4) == 0;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

/* Puts back what libmicrohttpd made NULs of; the whole was checked when it was read. */
struct restore {
    const char *begin;
    char *raw;
};

static void end_line(const struct restore *r, const char *end) {
    memcpy(r->raw + (end - r->begin), "\r\n", 2);
}

static enum MHD_Result restore_line(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                    const char *value, size_t value_size) {
    const struct restore *r = cls;

    (void)kind;
    r->raw[key + key_size - r->begin] = ':';
    end_line(r, value + value_size);
    return MHD_YES;
}

static void restore_request_line(const struct restore *r, const struct gb_http_text *target) {
    size_t method_len = strlen(r->begin);
    size_t version_at = method_len + target->len + 2;

    r->raw[method_len] = ' ';
    memcpy(r->raw + method_len + 1, target->s, target->len); /* the query was cut there */
    r->raw[version_at - 1] = ' ';
    end_line(r, r->begin + version_at + strlen("HTTP/1.1"));
}

void gb_head_keep(struct gb_exchange *ex) {
    const union MHD_ConnectionInfo *header = MHD_get_connection_info(ex->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct restore r = {.begin = ex->head_at};

    if (!r.begin || !header || ex->req.http10 || ex->raw)
        return;
    r.raw = malloc(header->header_size);
    if (!r.raw)
        return;
    memcpy(r.raw, r.begin, header->header_size);
    restore_request_line(&r, &ex->req.target);
    MHD_get_connection_values_n(ex->conn, MHD_HEADER_KIND, restore_line, &r);
    end_line(&r, r.begin + header->header_size - 2);
    ex->raw = r.raw;
    ex->raw_len = header->header_size;
}
