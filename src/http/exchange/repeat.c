#include "http/exchange/repeat.h"

#include <string.h>

/* What the head says; the rest is the request's own. */
static void copy_head(struct gb_http_request *to, const struct gb_http_request *from) {
    to->method = from->method;
    to->route = from->route;
    to->target = from->target;
    to->shown = from->shown;
    memcpy(to->aside, from->aside, sizeof(to->aside));
    memcpy(to->param, from->param, sizeof(to->param));
    memcpy(to->query, from->query, from->queries * sizeof(to->query[0]));
    to->queries = from->queries;
    memcpy(to->header, from->header, from->headers * sizeof(to->header[0]));
    to->headers = from->headers;
    to->close = from->close;
    to->has_content_length = from->has_content_length;
    to->content_length = from->content_length;
    to->expect_continue = from->expect_continue;
}

struct gb_exchange *gb_exchange_repeat(struct gb_exchange *like) {
    struct gb_exchange *ex = gb_exchange_new(like->server, NULL);

    if (!ex)
        return NULL;
    copy_head(&ex->req, &like->req);
    ex->like = gb_exchange_ref(like);
    ex->loop = like->loop;
    return ex;
}
