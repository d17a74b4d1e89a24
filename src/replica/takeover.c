/* A session whose owner is away, and which says that it is to be taken over: this node has its sealed buffers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replica/internal.h"

struct taking {
    struct gb_fleet_register entry;
    struct gb_arrival_wait wait;
};

static void taken(struct gb_fleet_ask *ask) {
    gb_arrival_wake(&gb_container_of(ask, struct taking, entry.ask)->wait);
}

/* A directory that stood still may have let the leases of nodes end that never stopped. */
static int check_silent(struct gb_arrival *arrival, struct gb_error *err) {
    struct gb_fleet_call call = {.method = "GET"};
    struct gb_error why = GB_ERROR_INIT;

    if (arrival->base[0] == '\0' ||
        (size_t)snprintf(call.url, sizeof(call.url), "%s/livez", arrival->base) >= sizeof(call.url))
        return gb_error_set(err, GB_ERR_NODE_UNREACHABLE,
                            "the node \"%s\" is in no network of this one, which so cannot tell whether it has stopped",
                            arrival->owner.name.s);
    if (gb_arrival_request(arrival, &call, &why) < 0)
        return why.code == GB_ERR_NODE_UNREACHABLE ? 0 : gb_error_move(err, &why);
    free(call.answer);
    return gb_error_set(err, GB_ERR_NODE_ALIVE, "the node \"%s\" answers, though the directory does not know that",
                        arrival->owner.name.s);
}

static int take(struct gb_copy *copy, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;
    struct taking t = {.entry = {.ask = {.done = taken}, .session = {.name = arrival->session}, .holds = true},
                       .wait = {.arrival = arrival}};

    memcpy(t.entry.session.claim, arrival->claim, sizeof(arrival->claim));
    gb_fleet_take(arrival->config.fleet, &t.entry);
    if (gb_arrival_ask_wait(&t.wait, &t.entry.ask, err) < 0)
        return -1;
    arrival->there = t.entry.session;
    copy->taken = t.entry.session.epoch;
    return 0;
}

/* What is here becomes the session. The directory says so already: until it has, it is tried again. */
static int become_owner(struct gb_copy *copy, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;

    if (gb_arrival_mourn(arrival, err) < 0 || gb_arrival_unveil(arrival, copy->taken, NULL, err) < 0)
        return -1;
    gb_fleet_refresh(arrival->config.fleet, &arrival->session);
    return GB_TAKEN;
}

int gb_takeover(struct gb_copy *copy, bool forced, struct gb_error *err) {
    struct gb_arrival *arrival = &copy->arrival;
    const struct gb_fleet_session *there = &arrival->there;

    if (copy->taken > 0)
        return become_owner(copy, err);
    if (!forced && arrival->config.url_count == 0)
        return 0; /* none could reach the session here */
    if (!forced && (there->on_partition != GB_ON_PARTITION_STOP || there->failover_after_s == 0 ||
                    arrival->absent_s < there->failover_after_s))
        return 0;
    if ((!forced && check_silent(arrival, err) < 0) || take(copy, err) < 0)
        return -1;
    return become_owner(copy, err);
}
