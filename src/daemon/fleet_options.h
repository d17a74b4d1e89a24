/* The options of a fleet, read. */
#ifndef GB_DAEMON_FLEET_OPTIONS_H
#define GB_DAEMON_FLEET_OPTIONS_H

#include "daemon/listen.h"
#include "daemon/options.h"
#include "fleet/fleet.h"

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

#endif
