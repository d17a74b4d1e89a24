/* Bounds the time that an ordered end may take. */
#ifndef GB_DAEMON_OVERTIME_H
#define GB_DAEMON_OVERTIME_H

#include "daemon/daemon.h"

struct gb_overtime;

/* After `seconds` (at least ten), or with the next signal on signal_fd, the process ends with GB_EXIT_SOFTWARE unless
 * gb_overtime_end came before. NULL when there is no memory or thread for it: then nothing is bounded. */
struct gb_overtime *gb_overtime_start(const struct gb_log *log, int signal_fd, uint64_t seconds);
void gb_overtime_end(struct gb_overtime *overtime); /* NULL is accepted */

#endif
