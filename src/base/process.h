/* What the kernel knows of this process. */
#ifndef GB_BASE_PROCESS_H
#define GB_BASE_PROCESS_H

#include <stdint.h>

struct gb_process {
    uint64_t cpu_ns; /* of all its threads, in user and system mode */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_fds;
    uint64_t max_fds; /* UINT64_MAX: no limit */
};

/* What cannot be read is 0. [any thread] */
void gb_process_read(struct gb_process *ret);

/* Nanoseconds since the epoch at which the process began, by the clock as it is set now; 0 where that cannot be
 * read. */
uint64_t gb_process_started_ns(void);

#endif
