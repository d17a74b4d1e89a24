/* What single options and all of them together mean, before anything is opened: texts become lists, bounds and
 * modes, and what cannot work is refused with the option's name. The start and "gpubufd check" call this. Errors are
 * INVALID_ARGUMENT. */
#ifndef GB_DAEMON_CHECKS_H
#define GB_DAEMON_CHECKS_H

#include "daemon/daemon.h"

struct gb_options_check {
    int (*run)(struct gb_daemon *daemon, struct gb_error *err); /* also writes what it reads into the daemon */
    enum gb_exit status;                                        /* of a start that it fails */
};

extern const struct gb_options_check gb_options_checks[]; /* each does without the others */
extern const size_t gb_options_checks_count;

/* Runs them up to the first that fails. Returns GB_EXIT_OK, or its status with *err. gb_daemon_free_bounds is due
 * either way. */
enum gb_exit gb_daemon_check_options(struct gb_daemon *daemon, struct gb_error *err);
void gb_daemon_free_bounds(struct gb_http_bounds *bounds);

/* The numbers of an option --map-uids or --map-gids. */
int gb_daemon_read_ids(const struct gb_text_list *words, const char *option, struct gb_id_list *ret,
                       struct gb_error *err);

/* The options --default-pool-threshold and --default-pool-reuse. */
int gb_daemon_read_default_pools(const struct gb_options *options, struct gb_default_pools *ret, struct gb_error *err);

/* The options of the audit. age: 0 for ever. */
enum gb_audit_mode gb_daemon_audit_mode(const struct gb_options *options);
int64_t gb_daemon_audit_age_us(const struct gb_options *options);

#endif
