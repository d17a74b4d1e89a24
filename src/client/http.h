/* Requests over HTTP: a connection, which a client or a thread of a transfer has, and what it makes of a reply. */
#ifndef GBC_HTTP_H
#define GBC_HTTP_H

#include "client/internal.h"

struct gbc_conn *gbc_conn_new(struct gbc_settings *set, struct gpubuf_error *err);
void gbc_conn_free(struct gbc_conn *conn);

/* Asks, again where that may be, and waits. 0 with a status below 400, or -1 with err. */
int gbc_perform(struct gbc_conn *conn, struct gbc_request *request, struct gpubuf_error *err);
/* Waits for ms, as part of the request of the last gbc_perform: 0, or -1 with err when it was interrupted. */
int gbc_pause(struct gbc_conn *conn, uint64_t ms, struct gpubuf_error *err);
double gbc_took_ms(const struct gbc_conn *conn); /* the last attempt; negative: it is not known */
/* Of the last gbc_perform, until the next. */
struct gbc_reply *gbc_reply_of(struct gbc_conn *conn);

void gbc_reply_done(struct gbc_reply *reply);
/* A line of a header, with its end of line; *ret_end at the line that ends the header of a final answer. */
void gbc_reply_line(struct gbc_reply *reply, const char *line, size_t bytes, bool *ret_end);

#define GBC_REFUSAL_SIZE 384

/* After EACCES or EPERM: which mode, user and group stand in the way, and who we are. Any thread. */
void gbc_socket_refusal(const char *path, char *ret, size_t size);

/* Whether the host of a URL is this machine, whatever its name service says. */
bool gbc_is_loopback(const char *url);

#endif
