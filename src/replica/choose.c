/* Which node is to keep copies. Pure. */
#include <jansson.h>
#include <string.h>

#include "replica/internal.h"

#define ZONE "zone"

/* "" if it has none. */
static void zone_of(const struct gb_fleet_node *node, char ret[64]) {
    json_t *labels = json_loads(node->labels, 0, NULL);
    const char *zone = json_string_value(json_object_get(labels, ZONE));

    ret[0] = '\0';
    if (zone && strlen(zone) < 64)
        strcpy(ret, zone);
    json_decref(labels);
}

static bool is_of(const struct gb_kept *kept, const struct gb_arrival_config *is, const struct gb_name *node) {
    size_t i;

    for (i = 0; i < kept->count; i++)
        if (gb_name_equal(&kept->holders[i].is.node, node))
            return true;
    return gb_name_equal(&is->node, node);
}

static bool has_refused(const struct gb_refusal *refusals, size_t count, const struct gb_name *node) {
    size_t i;

    for (i = 0; i < count; i++)
        if (gb_name_equal(&refusals[i].node, node))
            return true;
    return false;
}

/* It is the holder that connects, by one of the networks that both know. */
static bool is_near(const struct gb_arrival_config *is, const struct gb_fleet_node *node) {
    size_t i;

    for (i = 0; i < is->url_count; i++)
        if (gb_fleet_url_on(node, &is->urls[i].network))
            return true;
    return false;
}

static uint64_t free_bytes(const struct gb_fleet_node *node) {
    uint64_t most = 0;
    size_t i;

    for (i = 0; i < node->device_count; i++)
        if (node->devices[i].free_bytes > most)
            most = node->devices[i].free_bytes;
    return most;
}

/* Whether none of the nodes that have the session is in that zone. */
static bool is_other_zone(const struct gb_fleet_node *nodes, size_t count, const struct gb_arrival_config *is,
                          const struct gb_kept *kept, const char *zone) {
    char theirs[64];
    size_t i;

    if (zone[0] == '\0')
        return false;
    for (i = 0; i < count; i++) {
        if (!is_of(kept, is, &nodes[i].name))
            continue;
        zone_of(&nodes[i], theirs);
        if (strcmp(theirs, zone) == 0)
            return false;
    }
    return true;
}

const struct gb_fleet_node *gb_holder_choose(const struct gb_fleet_node *nodes, size_t count,
                                             const struct gb_arrival_config *is, const struct gb_kept *kept,
                                             const struct gb_refusal *refusals, size_t refusal_count, uint64_t bytes,
                                             uint32_t (*random)(void *arg), void *arg) {
    const struct gb_fleet_node *two[2] = {NULL, NULL};
    bool best_zone = false;
    char zone[64];
    uint32_t seen = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        const struct gb_fleet_node *node = &nodes[i];
        bool other;
        uint32_t at;

        if (!node->alive || node->draining || is_of(kept, is, &node->name) || !is_near(is, node) ||
            has_refused(refusals, refusal_count, &node->name) || free_bytes(node) < bytes)
            continue;
        zone_of(node, zone);
        other = is_other_zone(nodes, count, is, kept, zone);
        if (best_zone && !other)
            continue;
        if (other && !best_zone) { /* from here on those of another zone alone */
            best_zone = true;
            two[0] = two[1] = NULL;
            seen = 0;
        }
        at = seen < 2 ? seen : random(arg) % (seen + 1);
        if (at < 2)
            two[at] = node;
        seen++;
    }
    if (two[1] && free_bytes(two[1]) > free_bytes(two[0]))
        return two[1];
    return two[0];
}
