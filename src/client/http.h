/* Inside of connections: the files http*.c share this. */
#ifndef GBC_HTTP_H
#define GBC_HTTP_H

#include <curl/curl.h>

#include "client/client.h"

#define GBC_BODY_MAX ((size_t)64 << 20) /* of an answer that is kept in memory */

struct gbc_conn {
    struct gbc_settings *set;
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers;
    struct gbc_request *request; /* of the attempt that runs */
    struct gbc_reply reply;
    struct gpubuf_error inner; /* of callbacks */
    uint64_t moved_ms;         /* when something came or went last */
    uint64_t body_at;          /* bytes of the body that curl took */
    bool sent;                 /* all of the request */
    bool answered;             /* the header of the answer is whole */
    CURLcode code;             /* of the last attempt */
    double took_ms;            /* the last attempt */
    char said[CURL_ERROR_SIZE];
    struct gbc_text hop;    /* the URL to which a node of a fleet sent the request; empty: the client's own daemon */
    struct gbc_text origin; /* "http[s]://HOST[:PORT]" of it */
    unsigned hops;
};

/* Tells curl of conn->request; _unset frees what that took. */
int gbc_conn_set(struct gbc_conn *conn, struct gpubuf_error *err);
void gbc_conn_unset(struct gbc_conn *conn);

/* Whether a node of a fleet names another one: a status of 307 and a URL with the parameter "via". */
bool gbc_redirect_is(const struct gbc_reply *reply);
/* The next attempt goes where conn->reply says: 0, or -1 with err. */
int gbc_redirect_take(struct gbc_conn *conn, struct gpubuf_error *err);
/* The next attempt goes to the client's own daemon. */
void gbc_redirect_home(struct gbc_conn *conn);
/* Where the attempt goes, for texts. */
const char *gbc_redirect_origin(const struct gbc_conn *conn);
/* Whether that is another host or port: the token stays here. */
bool gbc_redirect_away(const struct gbc_conn *conn);

#endif
