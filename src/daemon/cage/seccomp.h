/* seccomp: from here on the kernel refuses system calls that calls.def does not permit, to all threads of this process.
 * What is refused, or permitted all the same, is logged once a call. enclose.c calls this, once in a process. */
#ifndef GB_DAEMON_CAGE_SECCOMP_H
#define GB_DAEMON_CAGE_SECCOMP_H

#include <stddef.h>

#include "base/error.h"
#include "base/log.h"

/* What the daemon needs beyond the rest: of calls, rules and files. */
enum { GB_CAGE_CUDA = 1, GB_CAGE_OUTWARD = 2 };

/* Numbers of the permitted calls, ascending, without those that rules of their own permit. Returns how many; at most
 * `room` are written. */
size_t gb_calls_permitted(unsigned sets, unsigned *ret, size_t room);

/* "ptrace"; "unknown" for a number that the headers of the build did not have. */
const char *gb_call_name(unsigned number);

enum gb_seccomp {
    GB_SECCOMP_OFF,
    GB_SECCOMP_LOG,   /* a call on no list is made, and logged once */
    GB_SECCOMP_ERRNO, /* it fails with EPERM, and is logged once */
    GB_SECCOMP_KILL   /* it ends the process */
};

/* "errno". */
const char *gb_seccomp_name(enum gb_seccomp mode);

/* Puts the filter in force, for good. sets: GB_CAGE_CUDA and so on. log is copied. *ret_mode: what is in
 * force; OFF where the kernel or the list lacks this processor. Once in a process. */
int gb_seccomp_enter(enum gb_seccomp mode, unsigned sets, const struct gb_log *log, enum gb_seccomp *ret_mode,
                     struct gb_error *err);

#endif
