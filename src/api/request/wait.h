/* How long a request waits, by Prefer: wait=N. */
#ifndef GB_API_REQUEST_WAIT_H
#define GB_API_REQUEST_WAIT_H

#include <stdint.h>

#include "http/http.h"

/* The wait of a sync when the client gives none, and at most. */
#define GB_SYNC_WAIT_S 30
#define GB_SYNC_WAIT_MAX_S 60
/* The longest wait of an allocation for memory; without Prefer: wait=N it does not wait. */
#define GB_ALLOC_WAIT_MAX_S 60

/* Returns the deadline of a sync that starts now, for gb_async_end. */
uint64_t gb_sync_deadline_ns(const struct gb_http_request *request);

#endif
