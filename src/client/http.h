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
};

/* Tells curl of conn->request; _unset frees what that took. */
int gbc_conn_set(struct gbc_conn *conn, struct gpubuf_error *err);
void gbc_conn_unset(struct gbc_conn *conn);

#endif
