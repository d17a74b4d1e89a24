/* A small download as JSON or text, which a thread of the core writes. */
#ifndef GB_API_TRANSFER_DOWNLOAD_VALUES_H
#define GB_API_TRANSFER_DOWNLOAD_VALUES_H

#include "api/transfer/download_plan.h"

/* [never blocks] Takes the bytes that are there into d->bytes. Returns 1 when it has all, 0: wait for wake, or -1. */
int gb_download_collect(struct download *d, struct gb_error *err);

/* The rest of a handler whose response has its headers. The request's state, d, is taken over. */
enum gb_step gb_download_write(struct gb_http_request *request, struct gb_error *err);

#endif
