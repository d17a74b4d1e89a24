/* The program of seccomp that decides on each system call. */
#ifndef GB_DAEMON_CAGE_FILTER_H
#define GB_DAEMON_CAGE_FILTER_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

#define GB_FILTER_MAX 1024

struct gb_filter {
    struct sock_filter code[GB_FILTER_MAX];
    unsigned short length;
};

/* Permits what calls.def and the rules here permit; every other call gets the action `unknown` (SECCOMP_RET_...).
 * False: this processor is not known. */
bool gb_filter_build(unsigned sets, uint32_t unknown, struct gb_filter *ret);

#endif
