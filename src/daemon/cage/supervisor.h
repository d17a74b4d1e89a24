/* The thread that permits, and logs, system calls on no list. */
#ifndef GB_DAEMON_CAGE_SUPERVISOR_H
#define GB_DAEMON_CAGE_SUPERVISOR_H

#include "base/error.h"
#include "base/log.h"

/* Before the filter is in force, since the kernel is asked what no list permits. log is copied. Once in a process. */
int gb_supervisor_prepare(const struct gb_log *log, struct gb_error *err);

/* Takes fd, the filter's descriptor. The thread lives as long as the process: without it such calls would fail with
 * ENOSYS. */
int gb_supervisor_start(int fd, struct gb_error *err);

#endif
