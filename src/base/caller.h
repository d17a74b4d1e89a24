/* Which token a request has. */
#ifndef GB_BASE_CALLER_H
#define GB_BASE_CALLER_H

#include <stdint.h>

#include "base/text.h"

/* Kept with the request, because the token may be revoked before it has ended. */
struct gb_caller {
    int64_t token; /* its id; 0: not known, or no token is needed */
    struct gb_name name;
};

#endif
