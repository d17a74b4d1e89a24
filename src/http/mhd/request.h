/* libmicrohttpd's access handler as a small state machine over the exchange's phase. On the loop's thread. */
#ifndef GB_HTTP_MHD_REQUEST_H
#define GB_HTTP_MHD_REQUEST_H

#include "http/mhd/loop.h"

/* libmicrohttpd's callbacks; cls is the loop. */
void *gb_mhd_on_uri(void *cls, const char *uri, struct MHD_Connection *connection);
int gb_mhd_on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                      const char *version, const char *upload_data, size_t *upload_data_size, void **con_cls);
/* libmicrohttpd reports an error of its own. Where it would send its head twice, the client gets our answer instead. */
void gb_mhd_on_error(struct gb_loop *loop);

/* The connection ends, or has a next request: ends one that libmicrohttpd has forgotten. */
void gb_mhd_forgotten(struct gb_conn *c);
/* The request has ended, answered or not. */
void gb_mhd_finished(struct gb_exchange *ex);

/* What became due outside a callback: a wake, a deadline, a stalled body. */
void gb_mhd_woken(struct gb_loop *loop, struct gb_exchange *ex);
void gb_mhd_timed_out(struct gb_loop *loop, struct gb_exchange *ex);
/* Its caller is no longer in force. */
void gb_mhd_revoked(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err);
/* Its answer is known, and the rest of its body does not come. */
void gb_mhd_answer_early(struct gb_loop *loop, struct gb_exchange *ex);
void gb_mhd_drop(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err);

#endif
