/* Whether a header is what libmicrohttpd 0.9.75 made of it.
 *
 * It reads leniently: a folded line goes to the end of the field's name, a NUL byte ends a name, a value or a line, a bare LF ends
 * a line. A proxy in front may understand the same bytes otherwise, and then the two disagree on where the request ends. The
 * lines lie in libmicrohttpd's buffer one behind the other, with two NULs where CR LF was, so that anything else leaves a gap. */
#include <microhttpd.h>
#include <string.h>

#include "http/server.h"

struct walk {
    const char *at; /* where the next line has to begin */
    bool gap;
};

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* A line "name: value": the colon has become a NUL. */
static enum MHD_Result walk_line(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                 const char *value, size_t value_size) {
    struct walk *w = cls;
    const char *colon = key + key_size;
    const char *blank;

    (void)kind;
    if (key != w->at || !value || value <= colon) {
        w->gap = true;
        return MHD_NO;
    }
    for (blank = colon + 1; blank < value && is_blank(*blank); blank++)
        ;
    w->gap = blank != value;
    w->at = value + value_size + 2;
    return w->gap ? MHD_NO : MHD_YES;
}

/* "GET /x HTTP/1.1": the blanks have become NULs. target_len is that of the target as it was received. */
static bool walk_request_line(struct walk *w, const char *method, const char *url, size_t target_len,
                              const char *version) {
    w->at = version + strlen(version) + 2;
    return url == method + strlen(method) + 1 && version == url + target_len + 1;
}

bool gb_mhd_head_is_whole(const struct gb_exchange *ex, const char *method, const char *url, const char *version) {
    const union MHD_ConnectionInfo *header = MHD_get_connection_info(ex->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct walk w = {.gap = false};

    /* Later releases refuse such headers themselves, and lay lines out otherwise. */
    if (!ex->loop->reads_leniently)
        return true;
    if (!header || !walk_request_line(&w, method, url, ex->req.target.len, version))
        return false;
    MHD_get_connection_values_n(ex->conn, MHD_HEADER_KIND, walk_line, &w);
    return !w.gap && w.at + 2 == method + header->header_size;
}
