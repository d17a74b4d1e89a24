/* Which node is to keep copies. Pure. */
#include <jansson.h>
#include <string.h>

#include "replica/internal.h"

#define ZONE "zone"
#define ZONE_SIZE 64

/* "" if it has none. */
static void zone_of(const struct gb_fleet_node *node, char ret[ZONE_SIZE]) {
    json_t *labels = json_loads(node->labels, 0, NULL);
    const char *zone = json_string_value(json_object_get(labels, ZONE));

    ret[0] = '\0';
    if (zone && strlen(zone) < ZONE_SIZE)
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

/* A holder comes to the owner: it is called there, or, if none can call it, told by the directory. */
static bool can_come(const struct gb_arrival_config *is, const struct gb_fleet_node *node) {
    return is->url_count > 0 && (node->url_count == 0 || gb_arrival_url(is, node));
}

static bool has_refused(const struct gb_refusal *refusals, size_t count, const struct gb_name *node) {
    size_t i;

    for (i = 0; i < count; i++)
        if (gb_name_equal(&refusals[i].node, node))
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

/* Zones in which the session is by now: its owner's and its holders'. */
struct zones {
    char names[GB_FLEET_HOLDERS_MAX + 1][ZONE_SIZE];
    size_t count;
};

static void gather_zones(const struct gb_fleet_node *nodes, size_t count, const struct gb_arrival_config *is,
                         const struct gb_kept *kept, struct zones *ret) {
    size_t i;

    ret->count = 0;
    for (i = 0; i < count && ret->count <= GB_FLEET_HOLDERS_MAX; i++)
        if (is_of(kept, is, &nodes[i].name))
            zone_of(&nodes[i], ret->names[ret->count++]);
}

static bool is_other_zone(const struct gb_fleet_node *node, const struct zones *zones) {
    char zone[ZONE_SIZE];
    size_t i = 0;

    zone_of(node, zone);
    while (i < zones->count && strcmp(zones->names[i], zone) != 0)
        i++;
    return zone[0] != '\0' && i == zones->count;
}

const struct gb_fleet_node *gb_holder_choose(const struct gb_fleet_node *nodes, size_t count,
                                             const struct gb_arrival_config *is, const struct gb_kept *kept,
                                             const struct gb_refusal *refusals, size_t refusal_count, uint64_t bytes,
                                             uint32_t (*random)(void *arg), void *arg) {
    const struct gb_fleet_node *two[2] = {NULL, NULL};
    struct zones zones;
    bool best_zone = false;
    uint32_t seen = 0;
    size_t i;

    gather_zones(nodes, count, is, kept, &zones);
    for (i = 0; i < count; i++) {
        const struct gb_fleet_node *node = &nodes[i];
        bool other;
        uint32_t at;

        if (!node->alive || node->draining || is_of(kept, is, &node->name) || !can_come(is, node) ||
            has_refused(refusals, refusal_count, &node->name) || free_bytes(node) < bytes)
            continue;
        other = is_other_zone(node, &zones);
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
