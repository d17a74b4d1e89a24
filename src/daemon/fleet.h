/* What the daemon has to do with other daemons: the options of the fleet and of copies, read and checked; the node,
 * which joins when the sockets listen and leaves at the end; the copies that clients ask for. The checks, the start
 * and the main loop call this. */
#ifndef GB_DAEMON_FLEET_H
#define GB_DAEMON_FLEET_H

#include "daemon/daemon.h"
#include "fleet/fleet.h"

/* --- options ------------------------------------------------------------------------------------------------------ */

#define GB_FLEET_SECRET_SIZE 256

struct gb_fleet_options {
    const char *endpoints; /* within --fleet */
    bool hubs;             /* they are hubs */
    bool unreachable;      /* --advertise none */
    char secret[GB_FLEET_SECRET_SIZE];
    char user[GB_FLEET_SECRET_SIZE]; /* "": none */
    struct gb_name fleet;
    struct gb_name node;
    char labels[GB_FLEET_LABELS_SIZE];
    struct gb_fleet_url urls[GB_FLEET_NETWORKS_MAX]; /* of --advertise, then of listeners */
    size_t url_count;
};

/* Reads and checks them as far as that goes without the sockets. Returns 1, 0 without --fleet, or -1 with
 * INVALID_ARGUMENT. */
int gb_fleet_options_read(const struct gb_options *options, struct gb_fleet_options *ret, struct gb_error *err);

/* Adds a URL for each network of listeners that --advertise does not name. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_fleet_options_listen(struct gb_fleet_options *options, const struct gb_listeners *listeners,
                            struct gb_error *err);

/* The host of a URL, without port and brackets; GB_FLEET_URL_SIZE bytes. */
void gb_fleet_url_host(const char *url, char *ret);

/* --- the node ----------------------------------------------------------------------------------------------------- */

/* Reads the options of the fleet, before anything is opened. daemon->fleet stays NULL without --fleet.
 * INVALID_ARGUMENT. */
int gb_daemon_read_fleet(struct gb_daemon *daemon, struct gb_error *err);
/* Joins it, when the sockets are open and the API is there. INVALID_ARGUMENT. */
int gb_daemon_open_fleet(struct gb_daemon *daemon, struct gb_error *err);
/* The names accepted in Host: --host-name, and those of --advertise. */
const char *const *gb_daemon_hosts(const struct gb_daemon *daemon, size_t *ret_count);
/* Logs what has become of it since the last call, as is done when it changes. */
void gb_daemon_check_fleet(struct gb_daemon *daemon);
/* It stops: no session is placed here any more. */
void gb_daemon_drain_fleet(struct gb_daemon *daemon);
/* Gives up what is brought here from other nodes, when the server has stopped. Before the pulls are closed. */
void gb_daemon_close_moves(struct gb_daemon *daemon);
/* Leaves it, when the server has stopped. */
void gb_daemon_close_fleet(struct gb_daemon *daemon);

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* Reads from where buffers may be copied, before anything is opened. daemon->pulls stays NULL if from nowhere.
 * INVALID_ARGUMENT. */
int gb_daemon_read_pulls(struct gb_daemon *daemon, struct gb_error *err);
int gb_daemon_open_pulls(struct gb_daemon *daemon, struct gb_error *err);
/* Gives up those that run, when the server has stopped. */
void gb_daemon_close_pulls(struct gb_daemon *daemon);

#endif
