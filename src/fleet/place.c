#include "fleet/place.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "fleet/internal.h"

enum reason { FITS, ABSENT, DRAINING, UNREACHABLE, LABELS, MEMORY, LEFT_OUT, REASONS };

static uint64_t room_of(const struct gb_fleet_device *device) {
    uint64_t uncommitted = device->bytes > device->committed_bytes ? device->bytes - device->committed_bytes : 0;

    return device->free_bytes < uncommitted ? device->free_bytes : uncommitted;
}

/* Of the device with the most. */
static uint64_t most_room(const struct gb_fleet_node *node) {
    uint64_t most = 0;
    size_t i;

    for (i = 0; i < node->device_count; i++)
        if (room_of(&node->devices[i]) > most)
            most = room_of(&node->devices[i]);
    return most;
}

static enum reason judge(const struct gb_fleet_node *node, const struct gb_place_wish *wish) {
    if (wish->without && gb_name_equal(&node->name, wish->without))
        return LEFT_OUT;
    if (!node->alive)
        return ABSENT;
    if (node->draining)
        return DRAINING;
    if (!gb_fleet_url_on(node, wish->network))
        return UNREACHABLE;
    if (!gb_fleet_labels_match(node->labels, wish->select))
        return LABELS;
    return wish->bytes > 0 && most_room(node) < wish->bytes ? MEMORY : FITS;
}

static void explain(size_t count, const size_t reasons[REASONS], struct gb_error *err) {
    gb_error_set(
        err, GB_ERR_NO_NODE_FITS,
        "of %zu nodes %zu are not alive, %zu drain, %zu are not in this network, %zu lack the labels, %zu lack "
        "the memory",
        count - reasons[LEFT_OUT], reasons[ABSENT], reasons[DRAINING], reasons[UNREACHABLE], reasons[LABELS],
        reasons[MEMORY]);
}

size_t gb_place_choose(const struct gb_fleet_node *nodes, size_t count, const struct gb_place_wish *wish,
                       uint32_t (*random)(void *arg), void *arg, const struct gb_fleet_node *ret[GB_FLEET_HOPS_MAX],
                       struct gb_error *err) {
    size_t reasons[REASONS] = {0};
    size_t seen = 0;
    size_t chosen = 0;
    size_t i;

    /* A sample of the nodes that fit, each as likely as any other, without a list of them. */
    for (i = 0; i < count; i++) {
        enum reason reason = judge(&nodes[i], wish);
        size_t at;

        reasons[reason]++;
        if (reason != FITS)
            continue;
        seen++;
        at = random(arg) % seen;
        if (chosen < GB_FLEET_HOPS_MAX) {
            if (at < chosen)
                ret[chosen] = ret[at];
            ret[at] = &nodes[i];
            chosen++;
        } else if (at < GB_FLEET_HOPS_MAX) {
            ret[at] = &nodes[i];
        }
    }
    if (chosen == 0)
        explain(count, reasons, err);
    if (chosen > 1 && most_room(ret[1]) > most_room(ret[0])) {
        const struct gb_fleet_node *first = ret[0];

        ret[0] = ret[1];
        ret[1] = first;
    }
    return chosen;
}

/* --- the ask ------------------------------------------------------------------------------------------------------ */

struct placing {
    struct gb_job job;
    struct gb_node_list list;
    char select[GB_FLEET_LABELS_SIZE];
    uint64_t bytes;
    struct gb_name network;
    struct gb_name without;
    const struct gb_fleet_node *chosen[GB_FLEET_HOPS_MAX];
    size_t count;
};

static uint32_t chance(void *arg) {
    uint32_t n = 0;

    (void)arg;
    gb_random(&n, sizeof(n), NULL);
    return n;
}

static void give(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct placing *p = gb_container_of(job, struct placing, job);
    struct gb_fleet_place *to = gb_container_of(ask, struct gb_fleet_place, ask);
    size_t i;

    to->count = job->error.code == GB_OK ? p->count : 0;
    for (i = 0; i < to->count; i++)
        to->nodes[i] = *p->chosen[i];
}

static void free_placing(struct gb_job *job) {
    free(gb_container_of(job, struct placing, job)->list.items);
}

static void choose(struct gb_job *job) {
    struct placing *p = gb_container_of(job, struct placing, job);
    struct gb_place_wish wish = {
        .select = p->select, .bytes = p->bytes, .network = &p->network, .without = &p->without};

    if (job->error.code == GB_OK)
        p->count = gb_place_choose(p->list.items, p->list.count, &wish, chance, NULL, p->chosen, &job->error);
    gb_job_end(job);
}

static void start(struct gb_job *job) {
    gb_node_list_start(&gb_container_of(job, struct placing, job)->list, job, choose);
}

void gb_fleet_place(struct gb_fleet *fleet, struct gb_fleet_place *place) {
    struct placing *p = gb_job_new(fleet, sizeof(*p), start);

    place->count = 0;
    if (p) {
        snprintf(p->select, sizeof(p->select), "%s", place->select);
        p->bytes = place->bytes;
        p->network = place->network;
        p->without = place->without;
        p->job.give = give;
        p->job.free = free_placing;
    }
    gb_job_ask(fleet, p ? &p->job : NULL, &place->ask);
}
