/* One transfer on a transfer loop. All on the loop's thread. */
#ifndef GB_HTTP_TRANSFER_TRANSFER_H
#define GB_HTTP_TRANSFER_TRANSFER_H

#include "http/transfer/members.h"

/* Continues with a transfer as far as it gets without blocking; may free it. */
void gb_http_transfer_run(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* Answers with an error, whatever happened before the reply began. May free t. */
void gb_http_transfer_fail(struct gb_transfer_loop *loop, struct gb_http_transfer *t, const struct gb_error *err);

#endif
