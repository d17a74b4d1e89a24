/* The state of the storage of durable buffers, in one word for all replies that show it. */
#ifndef GB_API_REPLY_STORAGE_STATE_H
#define GB_API_REPLY_STORAGE_STATE_H

#include "core/core.h"

/* Where durable changes of the database fail, the storage as a whole has failed. n->present. *ret_why borrows from n;
 * its code is GB_OK in state READY. */
enum gb_disk_state gb_storage_state(const struct gb_storage_numbers *n, const struct gb_error **ret_why);

#endif
