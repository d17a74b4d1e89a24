/* The checks of all options together, which open nothing. */
#ifndef GB_DAEMON_OPTIONS_CHECK_H
#define GB_DAEMON_OPTIONS_CHECK_H

#include "daemon/daemon.h"

struct gb_options_check {
    int (*run)(struct gb_daemon *daemon, struct gb_error *err); /* also writes what it reads into the daemon */
    enum gb_exit status;                                        /* of a start that it fails */
};

extern const struct gb_options_check gb_options_checks[]; /* each does without the others */
extern const size_t gb_options_checks_count;

/* Runs them up to the first that fails. Returns GB_EXIT_OK, or its status with *err. */
enum gb_exit gb_daemon_check_options(struct gb_daemon *daemon, struct gb_error *err);

#endif
