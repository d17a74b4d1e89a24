/* System calls by name and number, and which of them are permitted. */
#ifndef GB_DAEMON_CAGE_CALLS_H
#define GB_DAEMON_CAGE_CALLS_H

#include <stddef.h>

/* What the daemon needs beyond the rest: of calls, rules and files. */
enum { GB_CAGE_CUDA = 1, GB_CAGE_OUTWARD = 2 };

/* Numbers of the permitted calls, ascending, without those that rules of their own permit. Returns how many; at most
 * `room` are written. */
size_t gb_calls_permitted(unsigned sets, unsigned *ret, size_t room);

/* "ptrace"; "unknown" for a number that the headers of the build did not have. */
const char *gb_call_name(unsigned number);

#endif
