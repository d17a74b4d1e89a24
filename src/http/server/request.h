/* libmicrohttpd's access handler as a small state machine over the exchange's phase. On the loop's thread. */
#ifndef GB_HTTP_SERVER_REQUEST_H
#define GB_HTTP_SERVER_REQUEST_H

#include "http/server/exchange.h"
#include "http/server/loop.h"

/* libmicrohttpd's callbacks; cls is the loop. */
void *gb_mhd_on_uri(void *cls, const char *uri, struct MHD_Connection *connection);
int gb_mhd_on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                      const char *version, const char *upload_data, size_t *upload_data_size, void **con_cls);
/* libmicrohttpd reports an error of its own. Where it would send its head twice, the client gets our answer instead. */
void gb_mhd_on_error(struct gb_loop *loop);

/* The connection ends, or has a next request: ends one that libmicrohttpd has forgotten. */
void gb_mhd_forgotten(struct gb_conn *c);
/* The request has ended, answered or not. */
void gb_mhd_request_finished(struct gb_exchange *ex);

/* What became due outside a callback: a wake, a deadline, a stalled body. */
void gb_mhd_request_woken(struct gb_loop *loop, struct gb_exchange *ex);
void gb_mhd_request_timed_out(struct gb_loop *loop, struct gb_exchange *ex);
/* Its caller is no longer in force. */
void gb_mhd_request_revoked(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err);
/* Its answer is known, and the rest of its body does not come. */
void gb_mhd_request_answer_early(struct gb_loop *loop, struct gb_exchange *ex);
void gb_mhd_request_drop(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err);

/* Checks that libmicrohttpd has read the header in its buffer as it was sent. Besides request.c, the fuzzer of heads
 * (tests/fuzz/fuzz_head.c) calls these. */

struct gb_head {
    const char *begin;
    const char *at; /* where the next line has to begin; NULL: this libmicrohttpd is strict */
};

/* To be called in this order: the request line, with the strings of the first callback; each field; the end. False: the
 * header is malformed. */
bool gb_head_request_line(struct gb_head *head, const struct gb_exchange *ex, const char *method, const char *url,
                          const char *version);
bool gb_head_end(const struct gb_head *head, const struct gb_exchange *ex);

/* Keeps the head as it was received in ex->raw, so that a request that begins with the same bytes need not be parsed.
 * Does nothing where that is not known, or memory is exhausted. While libmicrohttpd has the request. */
void gb_head_keep(struct gb_exchange *ex);

/* Copies the header fields into the request, each checked by *head (may be NULL). Returns 0, or -1 with *err. */
int gb_mhd_read_headers(struct gb_exchange *ex, struct gb_head *head, struct gb_error *err);

#endif
