/* seccomp: from here on the kernel refuses system calls that no list permits, to all threads of this process. */
#ifndef GB_DAEMON_CAGE_SECCOMP_H
#define GB_DAEMON_CAGE_SECCOMP_H

#include <stdbool.h>

#include "base/error.h"
#include "base/log.h"

enum gb_seccomp {
    GB_SECCOMP_OFF,
    GB_SECCOMP_LOG,   /* a call on no list is made, and logged once */
    GB_SECCOMP_ERRNO, /* it fails with EPERM, and is logged once */
    GB_SECCOMP_KILL   /* it ends the process */
};

/* "errno". */
const char *gb_seccomp_name(enum gb_seccomp mode);

/* Puts the filter in force, for good. sets: GB_CAGE_CUDA and so on (calls.h). log is copied. *ret_mode: what is in
 * force; OFF where the kernel or the list lacks this processor. Once in a process. */
int gb_seccomp_enter(enum gb_seccomp mode, unsigned sets, const struct gb_log *log, enum gb_seccomp *ret_mode,
                     struct gb_error *err);

#endif
