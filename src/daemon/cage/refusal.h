/* What a refused system call comes to: EPERM, and a line in the log. */
#ifndef GB_DAEMON_CAGE_REFUSAL_H
#define GB_DAEMON_CAGE_REFUSAL_H

#include "base/error.h"
#include "base/log.h"

/* Logs that number, once in a process. Safe on any thread. log: NULL for the one of gb_refusal_prepare. */
void gb_refusal_tell(const struct gb_log *log, unsigned number, const char *outcome);

/* Has SIGSYS, which the kernel raises for a refused call, make it fail with EPERM. A thread that blocks the signal ends
 * the process instead. log is copied. */
int gb_refusal_prepare(const struct gb_log *log, struct gb_error *err);

#endif
