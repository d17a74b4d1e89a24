/* What can be said of the options as a whole before anything is opened: by the start, and by "gpubufd check". */
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/options_check.h"

/* Beyond the one mark, and down to the other. */
static int check_marks(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;

    if (o->evict_high == 0 || o->evict_low <= o->evict_high)
        return 0;
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT, "--evict-low %llu is above --evict-high %llu: give --evict-low at most %llu",
        (unsigned long long)o->evict_low, (unsigned long long)o->evict_high, (unsigned long long)o->evict_high);
}

static int check_slots(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;

    if (o->slot_bytes > o->slots_bytes)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--slot-bytes is larger than --slots-bytes, which holds the slots");
    if (o->max_pinned_bytes == 0 || o->slots_bytes <= o->max_pinned_bytes)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "--slots-bytes %llu is more than --max-pinned-bytes %llu, which the slots count against: give "
                        "--max-pinned-bytes at least %llu, or fewer --slots-bytes",
                        (unsigned long long)o->slots_bytes, (unsigned long long)o->max_pinned_bytes,
                        (unsigned long long)o->slots_bytes);
}

static int read_uids(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_read_ids(&daemon->options.map_uids, "--map-uids", &daemon->map_peers.uids, err);
}

static int read_gids(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_read_ids(&daemon->options.map_gids, "--map-gids", &daemon->map_peers.gids, err);
}

static int read_pools(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_read_default_pools(&daemon->options, &daemon->default_pools, err);
}

static int read_bounds(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_read_bounds(&daemon->options, &daemon->bounds, err);
}

static int check_hosts(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_check_host_names(&daemon->options, err);
}

static int check_origins(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_check_origins(&daemon->options, err);
}

static int check_backend(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_backend_check(daemon->options.backend, err);
}

const struct gb_options_check gb_options_checks[] = {
    {check_backend, GB_EXIT_USAGE},
    {check_slots, GB_EXIT_CONFIG},
    {check_marks, GB_EXIT_CONFIG},
    {read_uids, GB_EXIT_USAGE},
    {read_gids, GB_EXIT_USAGE},
    {read_pools, GB_EXIT_USAGE},
    {read_bounds, GB_EXIT_USAGE},
    {check_hosts, GB_EXIT_USAGE},
    {check_origins, GB_EXIT_USAGE},
    {gb_daemon_read_fleet, GB_EXIT_USAGE},
    {gb_daemon_read_pulls, GB_EXIT_USAGE},
};
const size_t gb_options_checks_count = sizeof gb_options_checks / sizeof gb_options_checks[0];

enum gb_exit gb_daemon_check_options(struct gb_daemon *daemon, struct gb_error *err) {
    size_t i;

    for (i = 0; i < gb_options_checks_count; i++) {
        if (gb_options_checks[i].run(daemon, err) != 0)
            return gb_options_checks[i].status;
    }
    return GB_EXIT_OK;
}
