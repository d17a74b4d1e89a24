/* How long requests wait, by Prefer: wait=N. */
#ifndef GB_API_REQUEST_WAIT_H
#define GB_API_REQUEST_WAIT_H

#include <stdint.h>

#include "http/http.h"

/* How long a sync waits when the client does not say, and at most. */
#define GB_SYNC_WAIT_S 30
#define GB_SYNC_WAIT_MAX_S 60
/* How long an allocation waits for memory at most; without "Prefer: wait=N" it does not. */
#define GB_ALLOC_WAIT_MAX_S 60

/* When a sync that starts now gives up; for gb_async_end. */
uint64_t gb_sync_deadline_ns(const struct gb_http_request *request);

#endif
